// The picture of one row of attention on the page of needle results: what is drawn, told and handed out as CSV is
// P = A1 − λ·A2 of the extras at the λ of the slider.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "report/browser.h"
#include "report/needle_fixture.h"
#include "report/page.h"
#include "support/temporary_folder.h"

namespace unchain::report {
namespace {

std::vector<double> signed_row(const json& layer, size_t head, double lambda) {
  std::vector<double> p = layer["positive"][head].get<std::vector<double>>();
  for (size_t j = 0; j < p.size() && !layer["noise"].is_null(); ++j)
    p[j] -= lambda * layer["noise"][head][j].get<double>();
  return p;
}

// The bars of all colours together; each token has one.
std::vector<double> bars(const json& traces) {
  std::vector<double> all(traces[0]["y"].size(), 0);
  std::vector<int> seen(all.size(), 0);
  for (const json& trace : traces) {
    if (trace["type"] != "bar") continue;
    for (size_t j = 0; j < all.size(); ++j) {
      if (trace["y"][j].is_null()) continue;
      all[j] = trace["y"][j];
      EXPECT_EQ(all[j] < 0, trace["name"] == "negative");
      EXPECT_EQ(all[j] >= 0 && (j == 2 || j == 3), trace["name"] == "on the answer");
      ++seen[j];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(all.size(), 1));
  return all;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(got[j], want[j], 1e-12) << j;
}

void expect_found(const json& sentence, const std::string& part) {
  EXPECT_NE(sentence.get<std::string>().find(part), std::string::npos) << sentence << "\nhas no: " << part;
}

// Without a browser or Plotly it is skipped, in CI it fails.
class SlowNeedleRow : public testing::Test {
 protected:
  void SetUp() override {
    plotly_ = find_test_plotly();
    const std::string missing = find_chromium().empty() ? "no chromium is installed"
                                : plotly_.empty()       ? "no plotly.min.js (tools/setup fetches it)"
                                                        : "";
    if (missing.empty()) return;
    const char* ci = std::getenv("CI");
    if (ci != nullptr && std::string(ci) == "true") FAIL() << missing;
    GTEST_SKIP() << missing;
  }
  json look(const json& extras, int width, const std::string& actions = "") {
    write_page(folder_ / "report.html", {{"command", "needle"}}, extras, {.title = "", .plotly = plotly_});
    json seen = look_at(folder_ / "report.html", width, actions);
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    EXPECT_EQ(seen["data"].value("overflow", "?"), "no");
    EXPECT_EQ(seen["foreign"], 0);
    for (const json& control : seen["controls"]) EXPECT_TRUE(control["reachable"].get<bool>()) << control;
    return seen;
  }
  test::TemporaryFolder folder_;
  std::filesystem::path plotly_;
};

// What the actions below can do.
constexpr const char* kHands = R"(
  const set = async (name, value, event = "change") => {
    const input = doc.getElementById("row-" + name);
    input.value = value;
    input.dispatchEvent(new win.Event(event));
    await quiet();
  };
  const told = () => doc.querySelector("#row output").textContent;
  win.download = (name, text) => { extra.csv = text; };
  const lambda = doc.getElementById("row-lambda");
)";

TEST_F(SlowNeedleRow, BeginsWithTheLargestShareAtTheModelsOwnLambda) {
  const json row = needle_row();
  const json seen = look({{"needle_row", row}}, 360, std::string(kHands) + R"(
    await set("scale", "plain");
    extra.told = told();)");
  expect_near(bars(seen["pictures"]["row"]["traces"]), signed_row(row["layers"][0], 1, 0.617));
  EXPECT_EQ(seen["pictures"]["row"]["traces"][3]["y"], row["layers"][0]["positive"][1]);
  EXPECT_EQ(seen["extra"]["told"], "λ = 0.617, the model's own");
  // Σ P = 0.383; on the answer 0.3383 + 0.0883 of Σ|P| = 0.5468; in brackets those of A1.
  const json& sentence = seen["pictures"]["row"]["sentence"];
  expect_found(sentence, "layer 0 head 1 the row sums to 0.383 (1.00)");
  expect_found(sentence, "on the answer is 78\u00a0% (55\u00a0%), 2 (0) of 5 weights are negative");
  expect_found(sentence, "the largest is 0.338 on ‘4’ at 2 (0.400 on ‘4’ at 2).");
  expect_found(sentence, "Asked for Kamark <b>, whose number is 42, the model says ‘42;↵’.");
}

TEST_F(SlowNeedleRow, TheSliderMovesTheBarsAndTheTable) {
  const json row = needle_row();
  const json seen = look({{"needle_row", row}}, 1200, std::string(kHands) + R"(
    await set("lambda", 1.2, "input");
    lambda.stepUp();
    lambda.dispatchEvent(new win.Event("input"));
    await quiet();
    extra.told = told();
    extra.spoken = lambda.getAttribute("aria-valuetext");
    extra.ends = [lambda.min, lambda.max, lambda.step];
    doc.querySelector("#row .behind").open = true;
    doc.querySelector("#row .behind button").click();)");
  const std::vector<double> want = signed_row(row["layers"][0], 1, 1.21);
  std::vector<double> shown = bars(seen["pictures"]["row"]["traces"]);
  for (double& y : shown) y *= std::abs(y);  // the axis is that of square roots
  expect_near(shown, want);
  EXPECT_EQ(seen["extra"]["told"], "λ = 1.21; the model's own is 0.617");
  EXPECT_EQ(seen["extra"]["spoken"], seen["extra"]["told"]);
  EXPECT_EQ(seen["extra"]["ends"], json({"0", "1.5", "0.01"}));
  expect_found(seen["pictures"]["row"]["sentence"], "the row sums to −0.210 (1.00)");
  std::istringstream csv(seen["extra"]["csv"].get<std::string>());
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  EXPECT_EQ(line, "place,token,answer,A1,A2,P\r");
  for (size_t j = 0; j < want.size(); ++j) {
    ASSERT_TRUE(std::getline(csv, line));
    EXPECT_EQ(line.find(fmt::format("{},", j)), 0u) << line;
    EXPECT_EQ(line.find(",yes,") != std::string::npos, j == 2 || j == 3) << line;
    EXPECT_NEAR(std::stod(line.substr(line.rfind(',') + 1)), want[j], 1e-12) << line;
  }
  EXPECT_FALSE(std::getline(csv, line));
  EXPECT_EQ(seen["tables"]["row"].size(), 6u);
}

TEST_F(SlowNeedleRow, AnotherHeadBeginsWithItsOwnLambda) {
  const json row = needle_row();
  const json seen = look({{"needle_row", row}}, 800, std::string(kHands) + R"(
    await set("lambda", 1.2, "input");
    await set("head", "0");
    extra.head = told();
    await set("lambda", 0.5, "input");
    doc.getElementById("row-own").click();
    await quiet();
    extra.back = told();
    extra.plotted = doc.querySelector("#row .plot").data.map((t) => ({type: t.type, name: t.name, y: [...t.y]}));
    await set("layer", "1");
    await set("scale", "plain");
    extra.off = [lambda.disabled, told()];
    extra.without = doc.querySelector("#row .sentence").textContent;
    extra.weights = doc.querySelector("#row .plot").data.map((t) => ({type: t.type, name: t.name, y: [...t.y]}));
    await set("layer", "0");)");
  const json& extra = seen["extra"];
  EXPECT_EQ(extra["head"], "λ = 0.250, the model's own");
  EXPECT_EQ(extra["back"], extra["head"]);
  std::vector<double> shown = bars(extra["plotted"]);
  for (double& y : shown) y *= std::abs(y);
  expect_near(shown, signed_row(row["layers"][0], 0, 0.25));
  EXPECT_EQ(extra["off"], json({true, ""}));
  expect_found(extra["without"],
               "In layer 3 head 0, which has no noise term and so no λ to move, the row sums to 1.00,");
  expect_near(bars(extra["weights"]), signed_row(row["layers"][1], 0, 0));
}

TEST_F(SlowNeedleRow, SoftmaxHasNoSlider) {
  json row = needle_row();
  row["layers"].erase(0);
  const json seen = look({{"needle_row", row}}, 360, R"(extra.slider = doc.getElementById("row-lambda") !== null;)");
  EXPECT_EQ(seen["extra"]["slider"], false);
  expect_found(seen["pictures"]["row"]["sentence"], "layer 3 head 0, which has no noise term");
  expect_found(seen["pictures"]["row"]["sentence"], "It lies on softmax's simplex.");
}

TEST_F(SlowNeedleRow, IsLeftOutWithoutItsExtras) {
  for (const json& extras : {json::object(), json{{"needle_row", 5}}, json{{"needle_row", {{"layers", {nullptr}}}}},
                             json{{"needle_row", {{"layers", {nullptr}}, {"tokens", {"a"}}, {"number", {0, 1}}}}}}) {
    const json seen = look(extras, 360);
    EXPECT_EQ(seen["missing"]["row"], "Left out: these results hold no row of attention.") << extras;
  }
}

}  // namespace
}  // namespace unchain::report
