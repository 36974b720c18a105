#include "report/page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/file.h"
#include "report/browser.h"
#include "report/needle_fixture.h"
#include "report/page_fixture.h"
#include "support/environment.h"
#include "support/synthetic_report.h"
#include "unchain/error.h"

namespace unchain::report {
namespace {

using Page = PageTest;

TEST_F(Page, HoldsNothingOfHostileTextAsMarkup) {
  const std::string page = read_text(write(hostile()));
  EXPECT_EQ(page.find("dataset.errors='"), page.npos);
  EXPECT_EQ(page.find("onerror"), page.npos);
  EXPECT_EQ(page.find("<title></title>"), page.npos);
  EXPECT_EQ(page.find("http://"), page.npos);
  EXPECT_EQ(page.find("https://"), page.npos);
}

TEST_F(Page, TitleIsEscaped) {
  const std::string page = read_text(write(synthetic(1, 1, 2), {.title = "a <b> & \"c\" {{data}}", .plotly = {}}));
  EXPECT_NE(page.find("<h1>a &lt;b&gt; &amp; &quot;c&quot; {{data}}</h1>"), page.npos);
}

TEST_F(Page, StaysUnderTheLimitByCuttingExcerpts) {
  Synthetic data = synthetic(2, 2, 16);
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 3'000'000; ++i)
    noise +=
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state = state * 1664525u + 1013904223u) >>
                                                                           26];
  data.extras["excerpt"]["size"] = 2048;
  for (auto& layer : data.extras["excerpt"]["maps"]) {
    for (auto& head : layer) head = noise;
  }
  EXPECT_LT(std::filesystem::file_size(write(data)), kPageLimit);
  // Excerpts of several models are cut alike, and stay: else the page would be far smaller.
  const json models = {{"command", "compare"}, {"models", json::array()}};
  json half = data.extras;
  half["excerpt"]["maps"].erase(1);
  const json several = {{"models", json::array({half, half})}};
  const auto size = std::filesystem::file_size(write({models, several}));
  EXPECT_LT(size, kPageLimit);
  EXPECT_GT(size, kPageLimit / 4);
}

TEST_F(Page, TooLargeResultsAreAnError) {
  Synthetic data = synthetic(1, 1, 2);
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 9'000'000; ++i)
    noise += static_cast<char>('!' + ((state = state * 1664525u + 1013904223u) >> 26));
  data.results["settings"]["noise"] = noise;
  EXPECT_THROW(write(data), Error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.html"));
}

TEST_F(Page, BadArgumentsAreErrors) {
  EXPECT_THROW(write({json::array(), {}}), Error);
  EXPECT_THROW(write(synthetic(1, 1, 2), {.title = "", .plotly = folder_ / "absent.js"}), Error);
  EXPECT_THROW(write_page(folder_ / "absent" / "report.html", synthetic(1, 1, 2).results, {}), Error);
}

TEST_F(Page, FindsPlotlyInShareFolders) {
  const test::EnvironmentVariable none("UNCHAIN_SHARE", std::nullopt);
  EXPECT_EQ(find_plotly(folder_ / "bin"), "");
  const auto add = [&](const std::filesystem::path& place) {
    std::filesystem::create_directories(place);
    std::ofstream(place / "plotly.min.js") << "x";
    return place / "plotly.min.js";
  };
  const auto beside = add(folder_ / "bin" / "share" / "unchain");
  EXPECT_EQ(find_plotly(folder_ / "bin").lexically_normal(), beside);
  const auto above = add(folder_ / "share" / "unchain");
  EXPECT_EQ(find_plotly(folder_ / "bin").lexically_normal(), above);
  const auto named = add(folder_ / "other");
  const test::EnvironmentVariable other("UNCHAIN_SHARE", folder_ / "other");
  EXPECT_EQ(find_plotly(folder_ / "bin"), named);
}

TEST_F(SlowPageInBrowser, DrawsEveryPictureOfARealisticModel) {
  const Synthetic data = synthetic(30, 9, 48);
  const auto html = write(data, options_);
  EXPECT_LT(std::filesystem::file_size(html), kPageLimit);
  for (const int width : {360, 1400}) expect_sound(look_at(html, width), 7);
  expect_sound(look_at(html, 360, kOpenAll), 7);
}

TEST_F(SlowPageInBrowser, PlotsTheValuesOfTheResults) {
  const Synthetic data = synthetic(4, 3, 10);
  const json seen = look_at(write(data, options_), 1000, kOpenAll);
  expect_sound(seen, 7);
  const json& layers = data.results["layers"];
  const json& pictures = seen["pictures"];
  const json& overview = seen["tables"]["overview"];
  ASSERT_EQ(overview.size(), 13u);
  for (size_t l = 0; l < 4; ++l) {
    double sink = 0, rank = 0;
    for (size_t h = 0; h < 3; ++h) {
      const json& head = layers[l]["heads"][h];
      EXPECT_EQ(pictures["overview"]["traces"][0]["z"][h][l], head["entropy_normalised"]["mean"]);
      EXPECT_EQ(pictures["mass"]["traces"][0]["y"][l * 3 + h], head["sink_mass"]["mean"]);
      EXPECT_EQ(pictures["mass"]["traces"][2]["y"][l * 3 + h], head["sink_mass_value_weighted"]["mean"]);
      EXPECT_EQ(pictures["rank"]["traces"][0]["y"][l * 3 + h], head["rank_entropy"]["mean"]);
      EXPECT_EQ(pictures["rank"]["traces"][2]["y"][l * 3 + h], head["permuted_rank_entropy"]["mean"]);
      EXPECT_NEAR(std::stod(overview[1 + l * 3 + h][2].get<std::string>()),
                  head["entropy_normalised"]["mean"].get<double>(), 5e-4);
      sink += head["sink_mass"]["mean"].get<double>() / 3;
      rank += head["permuted_rank_entropy"]["mean"].get<double>() / 3;
    }
    EXPECT_NEAR(pictures["mass"]["traces"][1]["y"][l].get<double>(), sink, 1e-12);
    EXPECT_NEAR(pictures["rank"]["traces"][3]["y"][l].get<double>(), rank, 1e-9);
    for (const json& trace : pictures["layers"]["traces"]) {
      const char* key = trace["name"] == "CKA of head outputs" ? "cka" : "cosine_distance";
      EXPECT_EQ(trace["y"][l], layers[l][key]["mean"]);
    }
  }
  EXPECT_EQ(pictures["spectra"]["traces"].back()["y"],
            data.extras["spectra"][2][0]);                                        // the middle layer, its first head
  EXPECT_EQ(seen["tables"]["figures"].size(), 1 + 4 * 2 + 4 * 3 * (12 + 4 * 5));  // not the null ones
}

TEST_F(SlowPageInBrowser, TellsWhatTheFirstTokenHolds) {
  Synthetic data = synthetic(2, 1, 4);
  const double values[2][3] = {{0.5, 0.3, 0.5}, {0.9, 0.1, 0.125}};
  for (size_t l = 0; l < 2; ++l) {
    json& head = data.results["layers"][l]["heads"][0];
    size_t k = 0;
    for (const char* key : {"sink_mass", "sink_mass_value_weighted", "row_sum_without_first"})
      head[key] = {{"mean", values[l][k++]}, {"median", 0}, {"low", nullptr}, {"high", nullptr}};
  }
  const std::string sentence = look_at(write(data, options_), 900)["pictures"]["mass"]["sentence"];
  for (const char* part :
       {"Over all heads the first token holds 70\u00a0% of the weight, 20\u00a0% value-weighted; the row "
        "sum without it is 0.313. ",
        "differ most in layer 1: 90\u00a0% of the weight, 10\u00a0% value-weighted; the row sum "
        "without it is 0.125. In layer 1 head 0 puts "})
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
}

TEST_F(SlowPageInBrowser, ShowsTheChosenMapWithItsSigns) {
  Synthetic data = synthetic(2, 2, 3);
  data.extras["tokens"] = {"a", " b", "\n"};
  data.extras["excerpt"]["maps"][1][0] = plain_base64({255, 102, 153, 0, 51, 204});
  data.extras["excerpt"]["signs"] = {nullptr, {plain_base64({0x10}), nullptr}};
  const json seen = look_at(write(data, options_), 800, R"(
    for (const [id, value] of [["map-layer", "1"], ["map-head", "0"]]) {
      const select = doc.getElementById(id);
      select.value = value;
      select.dispatchEvent(new win.Event("change"));
      await quiet();
    })");
  expect_sound(seen, 7);
  const json& map = seen["pictures"]["map"]["traces"][0];
  const std::vector<std::vector<double>> expected = {{1, NAN, NAN}, {0.4, 0.6, NAN}, {0, -0.2, 0.8}};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if (std::isnan(expected[i][j])) {
        EXPECT_TRUE(map["z"][i][j].is_null());
      } else {
        EXPECT_NEAR(map["z"][i][j].get<double>(), expected[i][j], 1e-12);
      }
    }
  }
  EXPECT_EQ(map["text"][2][1], "2 ‘↵’ looks at<br>1 ‘␣b’: <b>−4.0\u00a0%</b>");
  EXPECT_EQ(seen["pictures"]["map"]["ticks"], json({"a", "␣b", "↵"}));
}

TEST_F(SlowPageInBrowser, ControlsChangeWhatIsShown) {
  const Synthetic data = synthetic(3, 2, 40);
  const json seen = look_at(write(data, options_), 1200, R"(
    const set = async (id, value) => {
      const input = doc.getElementById(id);
      input.value = value;
      input.dispatchEvent(new win.Event("change"));
      await quiet();
    };
    await set("overview-measure", "sink_mass");
    await set("distributions-layer", "1");
    await set("distributions-head", "1");
    await set("map-from", "5");
    await set("map-to", "9");
    doc.getElementById("theme").click();
    doc.getElementById("theme").click();
    await quiet();)");
  expect_sound(seen, 7);
  EXPECT_EQ(seen["data"]["theme"], "dark");
  EXPECT_EQ(seen["pictures"]["overview"]["traces"][0]["z"][1][2],
            data.results["layers"][2]["heads"][1]["sink_mass"]["mean"]);
  const json& bars = seen["pictures"]["distributions"]["traces"][0];
  const json& counts = data.extras["histograms"]["entropy_normalised"]["counts"][1][1];
  double total = 0;
  for (const json& n : counts) total += n.get<double>();
  EXPECT_EQ(bars["type"], "bar");
  for (size_t b = 0; b < counts.size(); ++b)
    EXPECT_NEAR(bars["y"][b].get<double>(), counts[b].get<double>() / total, 1e-12);
  EXPECT_EQ(seen["pictures"]["map"]["ticks"].size(), 5u);
}

TEST_F(SlowPageInBrowser, NumbersReadWell) {
  const json seen = look_at(write(synthetic(1, 1, 1), options_), 900, R"(
    const {formatNumber, formatShare, formatMeasured, showToken, csv, measureOf} = win;
    extra.numbers = [0, 1, 12.34, 123.4, 0.05, 0.000412, -0.5, 3.88e-5, -2e300, NaN].map((x) => formatNumber(x));
    extra.shares = [0, 1, 0.93, 0.0312, 0.9949, 0.99999, 1e-9, -1e-9, -0.2, 1e9].map((x) => formatShare(x));
    extra.measured = [[0.93, 0.91, 0.95], [0.4, 0.3964, 0.4024], [0.5, 0.5, 0.5], [0.5, null, null]].map(([mean, low, high]) => formatMeasured({mean, low, high}, "share"));
    extra.tokens = [" a\n", "", "\u0000\u200d", "x".repeat(40)].map((t) => showToken(t));
    extra.csv = csv({columns: ["a", "b,c"], rows: [[1.5, "say \"hi\""], [null, "=1+1"], [1e-300, "x\ny"]]});
    extra.names = ["a1_entropy", "permuted_rank_r90", "unheard_of"].map((k) => measureOf(k).name);
  )");
  const json& extra = seen["extra"];
  EXPECT_EQ(extra["numbers"],
            json({"0", "1.00", "12.3", "123", "0.050", "0.000412", "−0.500", "3.88·10⁻⁵", "−2.00·10³⁰⁰", "–"}));
  EXPECT_EQ(extra["shares"],
            json({"0\u00a0%", "100\u00a0%", "93\u00a0%", "3.1\u00a0%", "99.5\u00a0%", "over 99.9\u00a0%",
                  "under 0.01\u00a0%", "about 0\u00a0%", "−20\u00a0%", "1.00·10¹¹\u00a0%"}));
  EXPECT_EQ(extra["measured"], json({"93\u00a0% (95\u00a0% interval 91 to 95\u00a0%)",
                                     "40\u00a0% (95\u00a0% interval 39.64 to 40.24\u00a0%)",
                                     "50\u00a0% (the same in every window)", "50\u00a0%"}));
  EXPECT_EQ(extra["tokens"], json({"␣a↵", "∅", "␀‹200d›", std::string(23, 'x') + "…"}));
  EXPECT_EQ(extra["csv"], "a,\"b,c\"\r\n1.5,\"say \"\"hi\"\"\"\r\n,'=1+1\r\n1e-300,\"x\ny\"\r\n");
  EXPECT_EQ(extra["names"], json({"Entropy (positive map)", "Singular values for 90 %, permuted map", "unheard of"}));
}

TEST_F(SlowPageInBrowser, HostileTextStaysText) {
  const json seen = look_at(write(hostile(), options_), 700, kOpenAll);
  expect_sound(seen, 7);
  const std::string text = seen["text"];
  EXPECT_NE(text.find("</title><script>"), text.npos);
  EXPECT_NE(text.find("<img src=x"), text.npos);
  const json& ticks = seen["pictures"]["map"]["ticks"];
  EXPECT_NE(std::find(ticks.begin(), ticks.end(), "&lt;&amp;"), ticks.end()) << ticks;
  EXPECT_NE(std::find(ticks.begin(), ticks.end(), "<!--"), ticks.end()) << ticks;
}

TEST_F(SlowPageInBrowser, OneLayerOneHeadIsEnough) {
  const json seen = look_at(write(synthetic(1, 1, 1), options_), 360);
  expect_sound(seen, 6);
  EXPECT_NE(seen["missing"]["layers"].get<std::string>().find("Left out"), std::string::npos);
}

TEST_F(SlowPageInBrowser, LayersAndHeadsKeepTheirOwnNumbers) {
  Synthetic data = synthetic(2, 2, 6);
  data.results["layers"][0]["layer"] = 5;
  data.results["layers"][1]["layer"] = 11;
  data.results["layers"][1]["heads"].erase(0);  // layer 11 has head 1 alone
  data.extras["excerpt"]["maps"][1].erase(0);
  const json seen = look_at(write(data, options_), 900, kOpenAll);
  expect_sound(seen, 7);
  const json& z = seen["pictures"]["overview"]["traces"][0]["z"];
  EXPECT_TRUE(z[0][1].is_null());
  EXPECT_EQ(z[1][1], data.results["layers"][1]["heads"][0]["entropy_normalised"]["mean"]);
  EXPECT_EQ(seen["pictures"]["overview"]["ticks"], json({"5", "11"}));
  EXPECT_EQ(seen["tables"]["overview"][3][0], "11");
  EXPECT_EQ(seen["tables"]["overview"][3][1], "1");
}

TEST_F(SlowPageInBrowser, IntervalsAreShownOnlyWhereThereAreSeveralWindows) {
  const std::string look = std::string(kOpenAll) + R"(
    const choose = doc.getElementById("overview-measure");
    const sentence = () => doc.querySelector("#overview .sentence").textContent;
    extra.measured = sentence();
    choose.value = "permuted_rank_stable";
    choose.dispatchEvent(new win.Event("change"));
    await quiet();
    extra.permuted = sentence();
    extra.bars = [...doc.querySelectorAll("#layers .yerror")].length;)";
  const auto columns = [](const json& seen, const char* table) { return seen["tables"][table][0].dump(); };
  const Synthetic data = synthetic(3, 2, 8);

  const json several = look_at(write(data, options_), 900, look);
  expect_sound(several, 7);
  EXPECT_EQ(several["text"].get<std::string>().find("How much these values differ"), std::string::npos);
  EXPECT_NE(several["extra"]["measured"].get<std::string>().find("95\u00a0% interval"), std::string::npos);
  EXPECT_EQ(several["extra"]["measured"].get<std::string>().find("One window"), std::string::npos);
  // A reference is of the first window alone, whatever the others have.
  EXPECT_TRUE(several["extra"]["permuted"].get<std::string>().ends_with(" One window: no interval."));
  EXPECT_EQ(several["extra"]["bars"], 2 * 3);
  for (const char* table : {"layers", "figures"})
    EXPECT_NE(columns(several, table).find("interval low"), std::string::npos) << table;

  const json one = look_at(write(of_one_window(data), options_), 900, look);
  expect_sound(one, 7);
  const std::string text = one["text"];
  EXPECT_NE(text.find("One window: no interval. How much these values differ"), std::string::npos);
  EXPECT_EQ(text.find("95\u00a0% interval"), std::string::npos);
  for (const char* picture : {"overview", "mass", "layers"})
    EXPECT_TRUE(one["pictures"][picture]["sentence"].get<std::string>().ends_with(" One window: no interval."));
  EXPECT_EQ(one["extra"]["bars"], 0);
  for (const char* table : {"overview", "layers", "figures"}) {
    EXPECT_EQ(columns(one, table).find("interval"), std::string::npos) << table;
    EXPECT_EQ(one["tables"][table][1].size(), one["tables"][table][0].size()) << table;
  }
  EXPECT_NE(text.find("rows; one window: no interval"), std::string::npos);
}

TEST_F(SlowPageInBrowser, WithoutExtrasThePicturesAreLeftOutAndNamed) {
  Synthetic data = synthetic(2, 2, 4);
  data.extras = nullptr;
  for (auto& layer : data.results["layers"]) {
    for (auto& head : layer["heads"]) head["sink_mass_value_weighted"] = nullptr;
  }
  const json seen = look_at(write(data, options_), 900);
  expect_sound(seen, 4);
  for (const char* id : {"map", "distributions", "spectra"})
    EXPECT_EQ(seen["missing"][id].get<std::string>().rfind("Left out", 0), 0u) << id;
  EXPECT_NE(seen["pictures"]["mass"]["sentence"].get<std::string>().find("not known"), std::string::npos);
}

TEST_F(SlowPageInBrowser, WithoutResultsNothingBreaks) {
  for (const json& results :
       {json::object(), json{{"layers", nullptr}, {"model", "x"}}, json{{"layers", {json::object(), nullptr}}}}) {
    const json seen = look_at(write({results, {}}, options_), 360);
    ASSERT_TRUE(seen.contains("data")) << seen;
    EXPECT_EQ(seen["data"].value("errors", "?"), "") << results;
    EXPECT_EQ(seen["missing"].size(), 7u) << results;
  }
}

TEST_F(SlowPageInBrowser, DrawsNeedleResults) {
  const json results = needle_results(3);
  const std::string first = std::string(kOpenAll) + R"(
    const choose = doc.getElementById("accuracy-which");
    choose.value = "first";
    choose.dispatchEvent(new win.Event("change"));
    await quiet();)";
  for (const int width : {360, 1200}) {
    const bool all = width == 360;
    const json seen = look_at(write({results, {}}, options_), width, all ? kOpenAll : first);
    expect_sound(seen, 3, 10);
    EXPECT_NE(seen["text"].get<std::string>().find("unchain needle"), std::string::npos);
    EXPECT_NE(seen["text"].get<std::string>().find("Needles found by tiny <b>"), std::string::npos);
    const json& z = seen["pictures"]["accuracy"]["traces"][0]["z"];
    const json& attention = seen["pictures"]["attention"]["traces"][0]["z"];
    for (size_t depth = 0; depth < 3; ++depth) {
      for (size_t length = 0; length < 2; ++length) {
        const json& cell = results["cells"][length * 3 + depth];
        EXPECT_EQ(z[depth][length], all ? cell["accuracy"] : cell["first"]["accuracy"]);
        EXPECT_EQ(attention[depth][length], cell["attention_on_answer"]["mean"]);
      }
    }
    EXPECT_EQ(seen["pictures"]["heads"]["traces"][0]["z"][2][1], 0.1 + 0.02);
    EXPECT_EQ(seen["pictures"]["accuracy"]["ticks"], json({"128", "256"}));
    const std::string sentence = seen["pictures"]["accuracy"]["sentence"];
    EXPECT_NE(sentence.find("Of 24 questions the model answers 12 right: 50\u00a0%"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("would give 25\u00a0%: the model does better."), std::string::npos) << sentence;
    EXPECT_EQ(seen["tables"]["accuracy"].size(), 7u);
    EXPECT_EQ(seen["tables"]["figures"].size(), 13u);
    EXPECT_EQ(seen["tables"]["figures"][1][7], " <img src=x onerror=1>\n42;");
  }
}

TEST_F(SlowPageInBrowser, DrawsNeedleResultsOfOneSampleOrNone) {
  const json seen = look_at(write({needle_results(1), {}}, options_), 900);
  expect_sound(seen, 3, 10);
  const std::string sentence = seen["pictures"]["attention"]["sentence"];
  EXPECT_TRUE(sentence.ends_with(" One sample: no interval.")) << sentence;
  for (const json& results : {json{{"command", "needle"}}, json{{"command", "needle"}, {"cells", {nullptr, 1}}}}) {
    const json empty = look_at(write({results, {}}, options_), 360);
    ASSERT_TRUE(empty.contains("data")) << empty;
    EXPECT_EQ(empty["data"].value("errors", "?"), "") << results;
    EXPECT_EQ(empty["missing"].size(), 4u) << results;
  }
}

TEST_F(SlowPageInBrowser, WithoutPlotlyTheTablesAreThere) {
  const json seen = look_at(write(synthetic(2, 2, 4)), 360);
  expect_sound(seen, 0);
  EXPECT_NE(seen["text"].get<std::string>().find("plotly.min.js was not found"), std::string::npos);
  for (const char* id : {"overview", "mass", "map", "distributions", "rank", "spectra", "layers"}) {
    EXPECT_GT(seen["tables"][id].size(), 1u) << id;
  }
}

}  // namespace
}  // namespace unchain::report
