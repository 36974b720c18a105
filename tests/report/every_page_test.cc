// What the pages of all commands have in common: limits, definitions and numbers of every picture; and what a reader
// can do with those of an analysis, of needles and of a comparison (of a study: study_hands_test.cc).
#include <algorithm>
#include <string>
#include <vector>

#include "report/compare_fixture.h"
#include "report/needle_fixture.h"
#include "report/page_hands.h"
#include "report/study_fixture.h"

namespace unchain::report {
namespace {

Synthetic analysis_page() {
  Synthetic data = synthetic(3, 2, 10);
  data.results["command"] = "analyze";
  return data;
}
Synthetic needle_page() {
  return {needle_results(3), {{"needle_row", needle_row()}}};
}
Synthetic compare_page() {
  return {compare_results(), compare_extras()};
}
Synthetic study_page() {
  return {full_results(), study_extras()};
}

TEST_F(SlowPageInBrowser, EveryPageSaysWhatItCannotShow) {
  const std::vector<std::pair<Synthetic, std::vector<std::string>>> pages = {
      {analysis_page(), {"4 windows of one text", "Weight is not use.", "the largest of 6", "8 bits"}},
      {needle_page(), {"its number copied", "Nothing was asked in more than 256 tokens.", "Those of one prompt"}},
      {compare_page(),
       {"not yet kinds of attention", "Each of the 3 differences", "models of one vocabulary alone", "no seconds"}},
      {study_page(), {"2 seeds at most", "not the text", "Tokens are not time.", "Claim 2. Not \"all\"."}}};
  for (const auto& [data, expected] : pages) {
    const std::string command = data.results["command"];
    SCOPED_TRACE(command);
    const json seen = look_at(write(data, options_), 360, R"(
      extra.title = doc.querySelector("#limits h2").textContent;
      extra.lines = [...doc.querySelectorAll("#limits li")].filter((line) => line.checkVisibility()).map((line) => line.textContent);
      extra.linked = doc.querySelector("nav a[href='#limits']").textContent;)");
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    EXPECT_EQ(seen["data"].value("overflow", "?"), "no");
    const json& extra = seen["extra"];
    EXPECT_EQ(extra["title"], "What this cannot show");
    EXPECT_EQ(extra["linked"], extra["title"]);
    EXPECT_GE(extra["lines"].size(), 5u);
    std::string all;
    for (const json& line : extra["lines"]) all += line.get<std::string>() + "\n";
    for (const std::string& part : expected) EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
    for (const char* wrong : {"NaN", "undefined", "null", "Infinity", "[object"})
      EXPECT_EQ(all.find(wrong), std::string::npos) << all;
  }
}

// Each picture at each of its choices: a click opens its definitions, another gives its numbers, and the table beside
// them says where these are from.
constexpr const char* kOpenEach = R"(
  let blob, file;
  const make = win.URL.createObjectURL.bind(win.URL);
  win.URL.createObjectURL = (given) => { blob = given; return make(given); };
  win.HTMLAnchorElement.prototype.click = function () { file = this.download; };
  extra.pictures = [];
  for (const section of [...doc.querySelectorAll("section.picture")].filter((each) => each.querySelector(".plot")?.hidden === false)) {
    const [about, behind] = section.querySelectorAll("details");
    const closed = !about.open && !behind.open;
    for (const details of [about, behind]) details.querySelector("summary").click();
    const button = behind.querySelector("button");
    const look = async (choice) => {
      await quiet();
      if (section.querySelector(".plot").hidden) return;
      await until(() => behind.querySelector("caption"));
      button.click();
      extra.pictures.push({
        id: section.id, choice, closed, open: about.open && about.checkVisibility(), title: about.querySelector("summary").textContent, about: [...about.querySelectorAll("p")].map((p) => p.textContent).join(" "),
        button: button.checkVisibility() ? button.textContent : "", file, lines: (await blob.text()).split("\r\n").length - 2, caption: behind.querySelector("caption").textContent,
      });
    };
    await look("");
    for (const select of section.querySelectorAll("select")) {
      const before = select.value;
      const set = (value) => { select.value = value; select.dispatchEvent(new win.Event("change")); };
      for (const {value} of [...select.options]) { set(value); await look(value); }
      set(before);
    }
  })";

TEST_F(SlowPageInBrowser, EveryPictureHasItsDefinitionAndItsNumbers) {
  const std::vector<std::pair<Synthetic, size_t>> pages = {
      {analysis_page(), 7}, {needle_page(), 4}, {compare_page(), 5}, {study_page(), 17}};
  const std::vector<std::string> extras_alone = {"map", "spectra", "distributions", "row"};
  for (const auto& [data, count] : pages) {
    SCOPED_TRACE(data.results["command"].get<std::string>());
    const json seen = look_at(write(data, options_), 1000, kOpenEach);
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    std::vector<std::string> ids;
    for (const json& picture : seen["extra"]["pictures"]) {
      SCOPED_TRACE(picture.dump().substr(0, 1500));
      const std::string id = picture["id"], about = picture["about"], caption = picture["caption"];
      if (ids.empty() || ids.back() != id) ids.push_back(id);
      EXPECT_EQ(picture["closed"], true);
      EXPECT_EQ(picture["open"], true);
      EXPECT_EQ(picture["title"], "How to read it, and definitions");
      EXPECT_GT(about.size(), 80u);
      EXPECT_EQ(about.find("No definition is known"), std::string::npos);
      EXPECT_EQ(picture["button"], "Download CSV");
      EXPECT_TRUE(picture["file"].get<std::string>().ends_with(".csv"));
      EXPECT_GE(picture["lines"].get<int>(), 1);
      const bool alone = std::find(extras_alone.begin(), extras_alone.end(), id) != extras_alone.end();
      EXPECT_NE(
          caption.find(alone ? ", from the data of this page, which results.json lacks: " : ", from results.json: "),
          std::string::npos);
    }
    EXPECT_EQ(ids.size(), count);
  }
}

TEST_F(SlowPageInBrowser, APointTellsItsValue) {
  const std::vector<std::tuple<Synthetic, size_t, std::vector<std::string>>> pages = {
      {analysis_page(), 7, {"mass: layer 0 head 0 | weight: ", "map: 0 ‘The’ looks at | 0 ‘The’: 100\u00a0%"}},
      {needle_page(),
       4,
       {"accuracy: 128 tokens, depth 0\u00a0% | 0 of 4 right", "heads: layer 0 head 0 | 0\u00a0%",
        "row: 2 ‘4’ | P = 0.338 | A1 = 0.400, A2 = 0.100"}},
      {compare_page(),
       5,
       {"differences: Loss | −25.0 % of 4.00 | difference −1.00", "side-by-side: first | 4.00\u00a0nats",
        "growth: <i>second | 8 tokens | 5.00\u00a0nats", "map: 0 ‘c’ looks at | 0 ‘c’: 100\u00a0%"}}};
  for (const auto& [data, count, told] : pages) {
    SCOPED_TRACE(data.results["command"].get<std::string>());
    const json seen = look_at(write(data, options_), 1200, std::string(kHands) + kPointAtAll);
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    const auto [pictures, all] = expect_told(seen["extra"]["points"], false);
    EXPECT_EQ(pictures.size(), count);
    for (const std::string& line : told) EXPECT_NE(all.find(line), std::string::npos) << line << "\n" << all;
  }
}

TEST_F(SlowPageInBrowser, AMapIsEnlargedByDraggingAndWholeAgain) {
  Synthetic analysis = analysis_page(), comparison = compare_page();
  analysis.extras["tokens"] = long_tokens();
  const json heads = {long_map(), long_map()};
  analysis.extras["excerpt"] = {{"size", kTokens}, {"scale", "sqrt"}, {"maps", json::array({heads, heads, heads})}};
  json& model = comparison.extras["models"][1];
  model["tokens"] = long_tokens();
  model["excerpt"] = {{"size", kTokens}, {"scale", "sqrt"}, {"maps", json::array({heads, heads})}};
  comparison.extras["models"] = json::array({model});
  for (const Synthetic& data : {analysis, comparison}) {
    SCOPED_TRACE(data.results["command"].get<std::string>());
    const json seen = look_at(write(data, options_), 1200, std::string(kHands) + kEnlargeMap);
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    expect_enlarged(seen["extra"]);
  }
}

}  // namespace
}  // namespace unchain::report
