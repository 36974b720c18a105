#include <string>

#include "report/compare_fixture.h"

namespace unchain::report {
namespace {

TEST_F(SlowPageInBrowser, DrawsAComparison) {
  const json results = compare_results();
  const std::string other = std::string(kOpenAll) + R"(
    for (const [id, value] of [["differences-model", "third"], ["side-by-side-measure", "lambda"]]) {
      const choose = doc.getElementById(id);
      choose.value = value;
      choose.dispatchEvent(new win.Event("change"));
    }
    await quiet();)";
  const std::string grows = std::string(kOpenAll) + R"(
    const show = doc.getElementById("growth-show");
    show.value = "numbers";
    show.dispatchEvent(new win.Event("change"));
    await quiet();)";
  const json numbers = look_at(write({results, {}}, options_), 1200, grows);
  EXPECT_EQ(numbers["pictures"]["growth"]["traces"][0]["x"], json({8, 16}));
  EXPECT_EQ(numbers["pictures"]["growth"]["traces"][0]["y"], json({612, 1124}));
  EXPECT_EQ(numbers["pictures"]["growth"]["traces"][1]["name"], "&lt;i&gt;second");
  EXPECT_EQ(numbers["tables"]["growth"].size(), 5u);
  for (const int width : {360, 1200}) {
    const bool start = width == 360;
    const json seen = look_at(write({results, {}}, options_), width, start ? kOpenAll : other);
    expect_sound(seen, 3, 6);
    const std::string text = seen["text"];
    EXPECT_NE(text.find("first · <i>second · third"), std::string::npos);
    EXPECT_NE(text.find("Perplexity: first 54.5."), std::string::npos) << text.substr(0, 600);
    EXPECT_NE(text.find("Loss: first 4"), std::string::npos) << text.substr(0, 600);
    // Shares of the first model's mean, the least first; filled where the bar does not touch 0.
    const json& dots = seen["pictures"]["differences"]["traces"][0];
    EXPECT_EQ(dots["x"], start ? json({-0.25, 0.25}) : json({0.25}));
    EXPECT_NE(text.find(start ? "Of 2 measures <i>second differs clearly from first in 1"
                              : "Of 1 measure third differs clearly from first in 0"),
              std::string::npos);
    const json& table = seen["tables"]["differences"];
    ASSERT_EQ(table.size(), start ? 3u : 2u);
    EXPECT_EQ(table[1][0], "loss_nats");
    EXPECT_EQ(seen["pictures"]["side-by-side"]["traces"][0]["y"], start ? json({4.0, 3.0, 5.0}) : json({0.5, 0.25}));
    EXPECT_EQ(seen["tables"]["side-by-side"].size(), start ? 4u : 3u);
    EXPECT_EQ(seen["pictures"]["growth"]["traces"][0]["y"], json({4.5, 4.0}));
  }
  for (const json& bad : {json{{"command", "compare"}}, json{{"command", "compare"}, {"models", {1, nullptr}}}}) {
    const json empty = look_at(write({bad, {}}, options_), 360);
    EXPECT_EQ(empty["data"].value("errors", "?"), "") << bad;
    EXPECT_EQ(empty["missing"].size(), 4u) << bad;
  }
}

// Maps and singular values of the models, one at a time: of the first that has negative weights at the beginning. The
// second has more layers and heads than the first.
TEST_F(SlowPageInBrowser, ShowsTheMapsOfEachModel) {
  const json extras = compare_extras();
  const auto choosing = [](const std::string& choices) {
    return std::string(kOpenAll) + "for (const [id, value] of [" + choices + R"(]) {
      const choose = doc.getElementById(id);
      choose.value = value;
      choose.dispatchEvent(new win.Event("change"));
    }
    await quiet();)";
  };
  const json seen = look_at(write({compare_results(), extras}, options_), 360, kOpenAll);
  expect_sound(seen, 5, 11);
  const json& map = seen["pictures"]["map"];
  EXPECT_EQ(map["traces"][0]["z"], json({{1.0, nullptr}, {-0.4, 0.6}}));
  EXPECT_EQ(map["sentence"].get<std::string>().find("<i>second. In layer 0 head 0"), 0u) << map["sentence"];
  EXPECT_EQ(seen["tables"]["map"].size(), 4u);
  EXPECT_EQ(seen["pictures"]["spectra"]["traces"].size(), 2u);
  const json first = look_at(write({compare_results(), extras}, options_), 1200,
                             choosing(R"(["map-model", "0"], ["spectra-model", "0"], ["spectra-layer", "0"])"));
  expect_sound(first, 5, 11);
  EXPECT_EQ(first["pictures"]["map"]["traces"][0]["z"], json({{1.0, nullptr}, {0.2, 0.8}}));
  EXPECT_EQ(first["pictures"]["spectra"]["traces"][0]["y"], json({1.0, 0.5}));
  const json none =
      look_at(write({compare_results(), extras}, options_), 360, choosing(R"(["map-model", "0"], ["map-layer", "1"])"));
  EXPECT_EQ(none["missing"]["map"], "Left out: first has no such layer or head.");
  EXPECT_EQ(none["data"].value("errors", "?"), "");
}

}  // namespace
}  // namespace unchain::report
