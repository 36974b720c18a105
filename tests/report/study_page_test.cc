#include <algorithm>
#include <string>
#include <vector>

#include "report/page_hands.h"
#include "report/study_fixture.h"

namespace unchain::report {
namespace {

TEST_F(SlowPageInBrowser, DrawsAStudy) {
  json results = study_results();
  const std::string other = std::string(kOpenAll) + R"(
    const choose = doc.getElementById("measures-measure");
    choose.value = "negative_mass";
    choose.dispatchEvent(new win.Event("change"));
    await quiet();)";
  for (const int width : {1200, 360}) {
    const bool unfinished = width == 360;
    if (unfinished) results["settings"]["planned_runs"] = 9;
    const json seen = look_at(write({results, {}}, options_), width, width == 360 ? kOpenAll : other);
    expect_sound(seen, 7, 10);
    const std::string text = seen["text"];
    EXPECT_EQ(text.find("unfinished: 5 of 9 runs") != std::string::npos, unfinished);
    EXPECT_EQ(text.find("Unfinished. 5 of 9 runs are done") != std::string::npos, unfinished);
    EXPECT_NE(text.find("Study: mine.json"), std::string::npos);
    EXPECT_NE(text.find("Of 3 claims: 1 supported, 1 refuted, 1 not measured."), std::string::npos);
    EXPECT_NE(text.find("4 trained models · 2 members · 2 seeds · 1 failed"), std::string::npos);
    // Estimates on their claimed side are right of the middle: 1 below 0, 3 inside [2, 5] by 1, −1 where above 0 is
    // claimed, none.
    const json& dots = seen["pictures"]["claims"]["traces"].back();
    ASSERT_EQ(dots["x"].size(), 4u);
    EXPECT_NEAR(dots["x"][0].get<double>(), 1 / 1.5, 1e-12);
    EXPECT_NEAR(dots["x"][1].get<double>(), 1 / 1.25, 1e-12);
    EXPECT_NEAR(dots["x"][2].get<double>(), -1 / 1.5, 1e-12);
    EXPECT_TRUE(dots["x"][3].is_null());
    // One claim with what stands beside it: 6 is 1 above the nearer end of [2, 5], its interval 0.5 to 1.25.
    const json& of_one = seen["pictures"]["claim-1"]["traces"];
    EXPECT_EQ(of_one.back()["x"].size(), 3u);
    EXPECT_NEAR(of_one.back()["x"][2].get<double>(), -1 / 1.25, 1e-12);
    const json& bar = of_one[of_one.size() - 6];  // before the marks, three verdicts and the floor in the legend
    EXPECT_NEAR(bar["x"][0].get<double>(), -1, 1e-12) << of_one;
    EXPECT_NEAR(bar["x"][1].get<double>(), -0.5 / 1.25, 1e-12);
    EXPECT_EQ(seen["tables"]["claim-1"].size(), 4u);
    EXPECT_EQ(seen["tables"]["claim-1"][3][1], "beside it");
    json legend = json::array();
    for (const json& trace : seen["pictures"]["claims"]["traces"])
      if (trace.value("name", json()).is_string()) legend.push_back(trace["name"]);
    EXPECT_EQ(legend, json({"supported", "undecided", "refuted", "noise floor"}));
    EXPECT_EQ(text.find("bold <i>claim</i> 1a") != std::string::npos, width == 1200) << text;
    EXPECT_EQ(seen["tables"]["claims"].size(), 5u);
    EXPECT_EQ(seen["tables"]["claims"][1][2], "A <b>bold</b> claim.");
    EXPECT_EQ(seen["tables"]["claims"][4][3], "not measured");
    // Any measure: a dot a run, the mean of the seeds.
    const json& measure = seen["pictures"]["measures"]["traces"];
    const bool loss = width == 360;
    EXPECT_EQ(measure[0]["y"], loss ? json({3.5, 3.0, 4.5, 4.0}) : json({0.0, 0.0, 0.1, 0.1}));
    EXPECT_EQ(measure[1]["y"], loss ? json({4.0, 3.5}) : json({0.05, 0.05}));
    EXPECT_EQ(seen["tables"]["measures"].size(), 5u);
    EXPECT_EQ(seen["pictures"]["needles"]["traces"][2]["y"], json({0.25, 0.25}));
    const json& curves = seen["pictures"]["curves"]["traces"];
    ASSERT_EQ(curves.size(), 2u);
    EXPECT_EQ(curves[0]["name"], "softmax");
    EXPECT_EQ(curves[0]["y"], json({5.0, 4.1}));
    EXPECT_EQ(seen["tables"]["curves"].size(), 5u);
  }
  // Of a track of which no claim asks the loss, perplexity tells nothing.
  for (const int run : {0, 1}) {
    results["runs"].push_back(results["runs"][run]);
    results["runs"].back()["track"] = "retrieval";
  }
  const std::string text = look_at(write({results, {}}, options_), 360)["text"];
  EXPECT_NE(text.find("Perplexity on unseen text (language, s)"), std::string::npos) << text;
  EXPECT_EQ(text.find("Perplexity on unseen text (retrieval, s)"), std::string::npos);
  for (const json& bad :
       {json{{"command", "study"}}, json{{"command", "study"}, {"claims", {1}}, {"runs", {nullptr}}}}) {
    const json empty = look_at(write({bad, {}}, options_), 360);
    ASSERT_TRUE(empty.contains("data")) << empty;
    EXPECT_EQ(empty["data"].value("errors", "?"), "") << bad;
    EXPECT_EQ(empty["missing"].size(), 13u) << bad;  // no section of a claim
  }
}

TEST_F(SlowPageInBrowser, DrawsWhatAStudyPoolsOverSeeds) {
  const json results = full_results();
  const std::string save = std::string(kOpenAll) + R"(
    const make = win.URL.createObjectURL.bind(win.URL);
    let kept;
    win.URL.createObjectURL = (blob) => { kept = blob; return make(blob); };
    extra.csv = {};
    for (const id of ["rank-loss", "layer-ranks", "hessian"]) {
      doc.querySelector(`#${id} .behind button`).click();
      extra.csv[id] = await kept.text();
    })";
  const auto html = write({results, {}}, options_);
  for (const int width : {360, 1200}) {
    const json seen = look_at(html, width, save);
    expect_sound(seen, 15, 33);
    // Loss above the model's own at rank 1, 5 and all: 1 and 2 of the two seeds, 0.5 more for the fixed map.
    EXPECT_EQ(trace(seen, "rank-loss", "A2, each text's own")["y"], json({1.5, 1.5, 1.5}));
    EXPECT_EQ(trace(seen, "rank-loss", "A2, one for all texts")["y"], json({2.0, 2.0, 2.0}));
    EXPECT_EQ(trace(seen, "rank-loss", "A1, each text's own")["y"], json({2.0, 2.0, 2.0}));
    EXPECT_EQ(trace(seen, "rank-loss", "softmax's map, one for all texts")["y"], json({4.5, 4.5, 4.5}));
    EXPECT_EQ(trace(seen, "layer-ranks", "A2")["y"], json({5.0, 8.0}));
    EXPECT_EQ(trace(seen, "layer-ranks", "softmax's map")["y"], json({20.0, 3.5}));
    EXPECT_NE(seen["pictures"]["layer-ranks"]["sentence"].get<std::string>().find("A2 in 1 of 2 (5.00, 8.00)"),
              std::string::npos);
    EXPECT_EQ(trace(seen, "lambda", "the model")["y"], json({1.0, 0.0, 2.0}));
    EXPECT_EQ(trace(seen, "lambda", "layer 1")["y"], json({0.5, 0.0, 1.0}));
    EXPECT_EQ(trace(seen, "lambda", "the model, lowest")["x"], json({0.75, 0.75}));
    EXPECT_EQ(trace(seen, "lambda", "the model, lowest")["y"], json({-0.25, -0.25}));
    EXPECT_EQ(trace(seen, "profile", "diff_v2, gain")["y"], json({0.75, 0.5}));
    EXPECT_EQ(trace(seen, "profile", "softmax, sensitivity")["y"], json({0.75, 0.125}));
    EXPECT_EQ(seen["pictures"]["depths"]["traces"][0]["z"], json({{0.25, 0.5}, {0.5, 0.75}}));
    EXPECT_EQ(trace(seen, "dynamics", "diff_v2")["y"], json({0.625, 0.625}));
    EXPECT_EQ(trace(seen, "hessian", "diff_v2")["y"], json({10 / 64.0, 20 / 64.0}));
    EXPECT_EQ(trace(seen, "curves", "softmax, still moving")["y"], json({5.0, 4.1}));
    const std::string ending = seen["pictures"]["curves"]["sentence"];
    for (const char* words : {"still moving: softmax (1 of 2);", "flat: 2 runs;", "too noisy to tell: 1 run,"})
      EXPECT_NE(ending.find(words), std::string::npos) << words << ": " << ending;
    // The CSV has the same: member, map, fitted to, rank, mean, least, most, seeds.
    const auto rank_loss = read_csv(seen["extra"]["csv"]["rank-loss"]);
    ASSERT_EQ(rank_loss.size(), 1u + 3 * 2 * 4 + 3);
    EXPECT_EQ(rank_loss[2], (std::vector<std::string>{"diff_v2", "A2", "each text's own", "1", "1.5", "1", "2", "2"}));
    EXPECT_EQ(rank_loss[8][3], "all");
    EXPECT_EQ(rank_loss[8][4], "2");
    const auto layers = read_csv(seen["extra"]["csv"]["layer-ranks"]);
    ASSERT_EQ(layers.size(), 1u + 3 * 2);
    EXPECT_EQ(layers[1], (std::vector<std::string>{"diff_v2", "A2", "0", "5", "4.5", "5.5", "2"}));
    EXPECT_EQ(layers[6], (std::vector<std::string>{"softmax", "A1", "1", "3.5", "3", "4", "2"}));
    const auto hessian = read_csv(seen["extra"]["csv"]["hessian"]);
    ASSERT_EQ(hessian.size(), 3u);
    EXPECT_EQ(hessian[2], (std::vector<std::string>{"diff_v2", "20", "0.3125", "0.3125", "0.3125", "1", "0.01"}));
    EXPECT_EQ(seen["tables"]["rank-loss"].size(), rank_loss.size());
  }
}

TEST_F(SlowPageInBrowser, EveryChoiceOfAStudyIsDrawn) {
  const json seen = look_at(write({full_results(), {}}, options_), 700, R"(
    extra.seen = {};
    for (const select of doc.querySelectorAll("section.picture select")) {
      for (const option of select.options) {
        select.value = option.value;
        select.dispatchEvent(new win.Event("change"));
        await quiet();
        const section = select.closest("section");
        extra.seen[`${select.id}=${option.value}`] = section.querySelector(".sentence").textContent;
      }
    })");
  expect_sound(seen, 14, 10);  // the last choice of loss is that on answers, which these runs lack
  const json& said = seen["extra"]["seen"];
  EXPECT_GT(said.size(), 20u);
  for (const auto& [choice, sentence] : said.items()) {
    const bool missing = choice == "curves-key=answer_loss_nats";
    EXPECT_EQ(sentence.get<std::string>().starts_with("Left out: "), missing) << choice << ": " << sentence;
    for (const char* wrong : {"NaN", "undefined", "null", "Infinity", "[object"})
      EXPECT_EQ(sentence.get<std::string>().find(wrong), std::string::npos) << choice << ": " << sentence;
  }
  // The last choice of each is shown: the lowest eigenvalues, with all that were found.
  EXPECT_EQ(trace(seen, "hessian", "diff_v2")["y"], json({-2.0, -2.0}));
  EXPECT_EQ(trace(seen, "hessian", "diff_v2, ten values")["y"], json({-2.0, -1.0, -2.0, -1.0}));
}

TEST_F(SlowPageInBrowser, ClaimsAndPicturesLeadToEachOther) {
  const json seen = look_at(write({full_results(), {}}, options_), 1200, std::string(kOpenAll) + R"(
    extra.bears = doc.querySelector("#rank-loss .bears").textContent;
    extra.limits = doc.querySelector("#limits").textContent;
    extra.links = [...doc.querySelectorAll("#claims td a")].map((a) => a.getAttribute("href"));
    extra.broken = extra.links.filter((to) => !doc.querySelector(to));
    extra.terms = {};
    for (const name of ["negative_mass", "loss_nats"]) {
      const choose = doc.getElementById("measures-measure");
      choose.value = name;
      choose.dispatchEvent(new win.Event("change"));
      await quiet();
      extra.terms[name] = doc.querySelector("#measures details").textContent;
    }
    const choose = doc.getElementById("measures-measure");
    choose.value = "negative_mass";
    choose.dispatchEvent(new win.Event("change"));
    await quiet();
    doc.querySelector("#claims td a[href='#measures']").click();
    await quiet();
    extra.more = [...doc.querySelectorAll("#claims .bears a")].map((a) => a.getAttribute("href"));
    extra.chosen = choose.value;)");
  const json& extra = seen["extra"];
  EXPECT_EQ(extra["bears"], "Bears on claims 1 (supported), 3.");
  EXPECT_EQ(extra["broken"], json::array());
  for (const char* to : {"#rank-loss", "#layer-ranks", "#measures"}) {
    EXPECT_NE(std::find(extra["links"].begin(), extra["links"].end(), to), extra["links"].end()) << to;
  }
  EXPECT_EQ(extra["chosen"], "loss_nats");
  EXPECT_EQ(extra["more"], json({"#claim-1", "#claim-2", "#claim-3"}));
  EXPECT_NE(extra["terms"]["negative_mass"].get<std::string>().find("Σ|P⁻|/Σ|P| of a row. Unit: share."),
            std::string::npos);
  EXPECT_NE(extra["terms"]["loss_nats"].get<std::string>().find("mean NLL of the unseen text"), std::string::npos);
  const std::string limits = extra["limits"];
  EXPECT_NE(limits.find("Claim 2. Not \"all\"."), std::string::npos) << limits;
  EXPECT_NE(limits.find("not the text"), std::string::npos) << limits;
}

TEST_F(SlowPageInBrowser, AStudyBeginsWithItsClaims) {
  // The second part of the first claim decides it: the table shows that one.
  json results = full_results();
  std::swap(results["claims"][0]["parts"][0], results["claims"][0]["parts"][1]);
  results["claims"][0]["decides"] = 1;
  results["claims"].push_back({{"id", 4}, {"verdict", "supported"}, {"decides", 0}, {"parts", {nullptr}}});  // left out
  for (const int width : {1200, 360}) {
    const json seen = look_at(write({results, study_extras()}, options_), width, R"(
      const table = doc.querySelector("#verdicts table");
      extra.first = doc.querySelector("main section").id;
      extra.shown = table.checkVisibility() && table.getBoundingClientRect().top < win.innerHeight;
      extra.caption = table.caption.textContent;
      let blob;
      const make = win.URL.createObjectURL.bind(win.URL);
      win.URL.createObjectURL = (file) => { blob = file; return make(file); };
      doc.querySelector("#verdicts button").click();
      extra.csv = await blob.text();)");
    expect_sound(seen, 17, 20);
    EXPECT_EQ(seen["extra"]["first"], "verdicts");
    EXPECT_EQ(seen["extra"]["shown"], true);
    EXPECT_EQ(seen["extra"]["caption"], "verdicts, from results.json: 3 rows");
    const std::vector<std::vector<std::string>> expected = {
        {"claim", "verdict", "what is claimed", "measured by", "claimed", "estimate", "low", "high", "seeds",
         "pictures"},
        {"1 bold <i>claim</i>", "supported", "A <b>bold</b> claim.", "loss nats, difference, part b", "< 0", "-1",
         "-1.5", "-0.75", "2", "rank-loss layer-ranks spectra measures"},
        {"2 bold <i>claim</i>", "refuted", "A <b>bold</b> claim.", "loss nats, difference", "> 0", "-1", "-1.5",
         "-0.75", "2", "layer-ranks spectra measures"},
        {"3 bold <i>claim</i>", "not measured", "A <b>bold</b> claim.", "loss nats, difference", "> 0", "", "", "", "2",
         "rank-loss measures"}};
    EXPECT_EQ(read_csv(seen["extra"]["csv"]), expected);
    const json& table = seen["tables"]["verdicts"];
    ASSERT_EQ(table.size(), 4u);
    for (size_t row = 0; row < 4; ++row)
      for (size_t column = 0; column < 5; ++column) EXPECT_EQ(table[row][column], expected[row][column]);
    EXPECT_EQ(table[3][5], "–");
  }
}

TEST_F(SlowPageInBrowser, AClaimOfTheTableLeadsToAllThatWasAskedOfIt) {
  const auto html = write({full_results(), study_extras()}, options_);
  const json seen = look_at(html, 1200, std::string(kHands) + R"(
    const topOf = (id) => Math.round(doc.getElementById(id).getBoundingClientRect().top);
    const linksOf = (id) => [...doc.querySelectorAll(`#${id} .bears a`)].map((a) => [a.textContent, a.getAttribute("href")]);
    extra.titles = [...doc.querySelectorAll("section[id^='claim-'] h2")].map((title) => title.textContent);
    const second = doc.querySelectorAll("#verdicts td:first-child a")[1];
    second.focus();
    for (const type of ["keyDown", "keyUp"]) await browser("Input.dispatchKeyEvent", {type, key: "Enter", code: "Enter", text: "\r", windowsVirtualKeyCode: 13});
    await until(() => win.location.hash === "#claim-2");
    await until(() => topOf("claim-2") === 16);
    extra.seen = linksOf("claim-2");
    extra.of_first = linksOf("claim-1").map(([, to]) => to);
    extra.broken = extra.seen.filter(([, to]) => !doc.querySelector(to));)");
  expect_sound(seen, 17, 20);
  const json& extra = seen["extra"];
  const std::string name = ": bold <i>claim</i>";
  EXPECT_EQ(extra["titles"], json({"Claim 1" + name, "Claim 2" + name, "Claim 3" + name}));
  EXPECT_EQ(extra["broken"], json::array());
  EXPECT_EQ(extra["seen"], json::parse(R"([["Effective rank by layer", "#layer-ranks"], ["Singular values", "#spectra"],
                                           ["Any measure, member by member", "#measures"]])"));
  EXPECT_EQ(extra["of_first"], json({"#rank-loss", "#layer-ranks", "#spectra", "#measures"}));
  // The address names a claim or a picture: 16 pixels are html's scroll-padding.
  for (const std::string id : {"claim-3", "hessian"}) {
    const json opened =
        look_at(html.string() + "#" + id, 360,
                "extra.top = Math.round(doc.getElementById('" + id + "').getBoundingClientRect().top);");
    expect_sound(opened, 17, 20);
    EXPECT_EQ(opened["extra"]["top"], 16) << id;
  }
}

TEST_F(SlowPageInBrowser, EveryClaimLeadsToItsPictures) {
  json results = full_results();
  const json claim = results["claims"][1];
  results["claims"] = json::array();
  for (int id = 1; id <= 24; ++id) {
    results["claims"].push_back(claim);
    results["claims"].back()["id"] = id;
  }
  const json table = look_at(write({results, study_extras()}, options_), 1200)["tables"]["verdicts"];
  ASSERT_EQ(table.size(), 25u);
  const std::vector<std::pair<std::vector<size_t>, std::vector<std::string>>> pictures = {
      {{1, 2}, {"layer-ranks", "spectra"}},
      {{1, 3, 18}, {"rank-loss"}},
      {{4, 9, 10, 13, 16}, {"needles", "depths"}},
      {{5, 6, 7, 8, 21}, {"map"}},
      {{11}, {"lambda"}},
      {{12}, {"profile"}},
      {{14, 15}, {"curves"}},
      {{23}, {"hessian"}}};
  for (const auto& [claims, expected] : pictures) {
    for (const size_t id : claims) {
      const std::string links = " " + table[id].back().get<std::string>() + ",";
      for (const std::string& picture : expected)
        EXPECT_NE(links.find(" " + picture + ","), std::string::npos) << id << ": " << links;
    }
  }
  for (size_t id = 1; id <= 24; ++id) EXPECT_TRUE(table[id].back().get<std::string>().ends_with("measures")) << id;
}

// Of softmax alone: what is claimed of a second map does not apply, what is claimed of other members has no runs.
TEST_F(SlowPageInBrowser, ClaimsThatDoNotApplySaySo) {
  json results = full_results();
  std::erase_if(results["runs"].get_ref<json::array_t&>(), [](const json& run) { return run["member"] != "softmax"; });
  results["claims"].erase(2);
  for (const size_t claim : {0, 1}) {
    const json verdict = claim == 0 ? json("not_applicable") : json();
    results["claims"][claim]["verdict"] = verdict;
    results["claims"][claim].erase("sensitivity");
    for (json& part : results["claims"][claim]["parts"]) {
      part["verdict"] = verdict;
      for (const char* key : {"mean", "low", "high", "floor", "detectable"}) part[key] = nullptr;
      part["seeds"] = 0;
    }
  }
  const json seen = look_at(write({results, {}}, options_), 1000, std::string(kOpenAll) + R"(
    const verdicts = (table) => [...doc.querySelectorAll(`#${table} tbody tr`)].map((row) => [...row.cells].map((cell) => cell.textContent));
    extra.columns = [...doc.querySelectorAll("#claims thead th")].map((cell) => cell.textContent);
    extra.rows = verdicts("claims");
    extra.said = ["claim-1", "claim-2"].map((id) => doc.querySelector(`#${id} .sentence`).textContent);
    extra.bears = doc.querySelector("#rank-loss .bears").textContent;)");
  EXPECT_EQ(seen["data"].value("errors", "?"), "");
  const std::string text = seen["text"];
  EXPECT_NE(text.find("Of 2 claims: 1 not applicable, 1 not measured."), std::string::npos) << text.substr(0, 800);
  EXPECT_EQ(text.find("not_applicable"), std::string::npos);
  const json& extra = seen["extra"];
  const auto column = [&](const char* name) {
    return std::find(extra["columns"].begin(), extra["columns"].end(), name) - extra["columns"].begin();
  };
  ASSERT_EQ(extra["rows"].size(), 3u);  // claim 1 has two parts
  for (size_t r = 0; r < 3; ++r) {
    const char* verdict = r < 2 ? "not applicable" : "not measured";
    for (const char* name : {"verdict", "verdict of the part"})
      EXPECT_EQ(extra["rows"][r][static_cast<size_t>(column(name))], verdict) << r << name;
    EXPECT_EQ(extra["rows"][r][static_cast<size_t>(column("estimate"))], "–");
  }
  EXPECT_NE(extra["said"][0].get<std::string>().find("We find: not applicable."), std::string::npos) << extra;
  EXPECT_NE(extra["said"][1].get<std::string>().find("We find: not measured."), std::string::npos) << extra;
  EXPECT_EQ(extra["bears"], "Bears on claim 1 (not applicable).");
  // No mark stands for what was not measured; pictures of a second map are left out, with the reason.
  for (const json& x : seen["pictures"]["claims"]["traces"].back()["x"]) EXPECT_TRUE(x.is_null());
  for (const char* id : {"rank-loss", "lambda", "profile", "hessian"})
    EXPECT_TRUE(seen["missing"].value(id, "").starts_with("Left out: ")) << id << seen["missing"];
}

TEST_F(SlowPageInBrowser, RunsThatLackPartsAreNoErrors) {
  const json full = full_results();
  for (const json& odd : {json(), json(1), json("x"), json::object(), json::array({nullptr, 1, json::object()})}) {
    json results = full;
    for (json& run : results["runs"])
      for (const char* key : {"layers", "curves", "curve", "ending", "hessian", "needle"}) run[key] = odd;
    const json seen = look_at(write({results, {}}, options_), 360);
    ASSERT_TRUE(seen.contains("data")) << seen;
    EXPECT_EQ(seen["data"].value("errors", "?"), "") << odd;
    EXPECT_EQ(seen["pictures"].size(), 5u) << odd;
    EXPECT_EQ(seen["missing"].size(), 11u) << odd;
  }
}

TEST_F(PageTest, AStudyLeavesOutWhatItsPageDoesNotShow) {
  json results = full_results();
  uint32_t state = 1;
  std::vector<double> noise(2'000'000);
  for (double& value : noise) value = (state = state * 1664525u + 1013904223u);
  results["runs"][0]["measures"]["loss_nats"]["windows"] = {noise};
  EXPECT_LT(std::filesystem::file_size(write({results, {}})), 1'000'000u);
}

}  // namespace
}  // namespace unchain::report
