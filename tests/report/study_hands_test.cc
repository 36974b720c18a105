// What a reader does with the page of a study: points at a picture, drags over it, chooses, goes from light to dark.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "report/page_hands.h"
#include "report/study_fixture.h"

namespace unchain::report {
namespace {

TEST_F(SlowPageInBrowser, APointOfAStudyTellsItsValue) {
  const json seen = look_at(write({full_results(), study_extras()}, options_), 1200, std::string(kHands) + kPointAtAll);
  EXPECT_EQ(seen["data"].value("errors", "?"), "");
  const auto [pictures, all] = expect_told(seen["extra"]["points"], true);
  EXPECT_EQ(pictures.size(), 16u);  // all but the claim that was not measured
  for (const char* told :
       {"rank-loss: A2, each text's own | rank 1 | 1.50\u00a0nats (1.00\u00a0nats to 2.00\u00a0nats over 2 seeds)",
        "layer-ranks: softmax's map | layer 0 | 20.0", "map: 0 ‘c’ looks at | 0 ‘c’: 100\u00a0%",
        "needles: softmax, seed 1 | 0.5000", "depths: softmax | 256 tokens, depth 0\u00a0% | 2 of 8 right: 25\u00a0%",
        "lambda: the model | m = 0 | 1.00\u00a0nats", "measures: softmax, seed 0 | 3.500"})
    EXPECT_NE(all.find(told), std::string::npos) << told << "\n" << all;
}

// One model, and a map of more tokens than there is room for labels.
json long_extras() {
  json extras = study_extras();
  json& model = extras["models"][1];
  model["tokens"] = long_tokens();
  const json heads = {long_map(), long_map()};
  model["excerpt"] = {{"size", kTokens}, {"scale", "sqrt"}, {"maps", json::array({heads})}};
  extras["models"] = json::array({model});
  return extras;
}

TEST_F(SlowPageInBrowser, AStudysMapIsEnlargedByDraggingAndWholeAgain) {
  const json seen =
      look_at(write({full_results(), long_extras()}, options_), 1200, std::string(kHands) + kEnlargeMap + R"(
    // The other pictures are not for dragging; what a script enlarges is whole again when it is drawn anew.
    const ranks = plotOf("rank-loss");
    ranks.scrollIntoView({block: "center", behavior: "instant"});
    const line = ranks.data.find((trace) => trace.hoverinfo !== "skip");
    const own = ranges(ranks);
    await drag(pixel(ranks, line, 0.2, line.y[0]), pixel(ranks, line, 1.8, line.y[0] - 0.5));
    extra.dragged = JSON.stringify(ranges(ranks)) === JSON.stringify(own);
    await win.Plotly.relayout(ranks, {"xaxis.range": [0.5, 1.5]});
    extra.enlarged = ranges(ranks)[0];
    await set("rank-loss-least", "0");
    await set("rank-loss-least", "1");
    extra.again = JSON.stringify(ranges(ranks)[0]) === JSON.stringify(own[0]);)");
  expect_sound(seen, 17, 20);
  const json& extra = seen["extra"];
  expect_enlarged(extra);
  EXPECT_EQ(extra["dragged"], true);
  EXPECT_EQ(extra["enlarged"], json({0.5, 1.5}));
  EXPECT_EQ(extra["again"], true);
}

TEST_F(SlowPageInBrowser, AChoiceOfMemberOrHeadChangesThePicture) {
  const json results = scattered_results();
  const json seen = look_at(write({results, study_extras()}, options_), 900, std::string(kHands) + R"(
    const z = () => plotOf("map").data[0].z;
    const last = () => { const {name, y, line} = plotOf("spectra").data.at(-1); return {name, y, width: line.width}; };
    const noise = () => plotOf("layer-ranks").data.find(({name}) => name === "A2").y;
    const lineOf = (name) => plotOf("rank-loss").data.find((trace) => trace.name === name).y;
    extra.maps = [z()];
    extra.label = [plotOf("map").getAttribute("aria-label")];
    extra.spectra = [last()];
    extra.ranks = [noise()];
    extra.rises = [[lineOf("A2, each text's own"), lineOf("softmax's map, each text's own")]];
    await set("map-head", "1");
    extra.maps.push(z());
    await set("map-model", "0");
    extra.maps.push(z());
    extra.label.push(plotOf("map").getAttribute("aria-label"));
    await set("spectra-head", "1");
    extra.spectra.push(last());
    await set("spectra-model", "0");
    extra.spectra.push(last());
    await set("layer-ranks-show", "of diff_v1");
    extra.ranks.push(noise());
    await set("rank-loss-member", "diff_v1");
    extra.rises.push([lineOf("A2, each text's own"), lineOf("softmax's map, each text's own")]);)");
  expect_sound(seen, 17, 20);
  const json& extra = seen["extra"];
  EXPECT_EQ(extra["maps"],
            json({{{1.0, nullptr}, {-0.4, 0.6}}, {{1.0, nullptr}, {0.2, 0.8}}, {{1.0, nullptr}, {0.4, 0.6}}}));
  EXPECT_EQ(extra["label"][0].get<std::string>().find("diff_v2: Attention map of layer 0 head 0"), 0u)
      << extra["label"];
  EXPECT_EQ(extra["label"][1].get<std::string>().find("softmax: Attention map of layer 0 head 1"), 0u)
      << extra["label"];
  EXPECT_EQ(extra["spectra"][0]["name"], "head 0");
  EXPECT_EQ(extra["spectra"][0]["y"], json({1, 0.25}));
  EXPECT_EQ(extra["spectra"][1]["name"], "head 1");
  EXPECT_EQ(extra["spectra"][1]["y"], json({1, 0.125}));
  EXPECT_EQ(extra["spectra"][2]["y"], json({1, 0.75, 0.375}));
  for (size_t i = 0; i < 2; ++i) {
    const char* member = i == 0 ? "diff_v2" : "diff_v1";
    double rank = 0, rise = 0;
    for (const json& run : results["runs"]) {
      if (run["member"] != member || run.contains("failed")) continue;
      rank += run["layers"]["a2_rank"][0].get<double>() / 2;
      rise +=
          (run["curves"]["rank_of_a2"][1]["loss_nats"].get<double>() - run["curves"]["loss_nats"].get<double>()) / 2;
    }
    EXPECT_NEAR(extra["ranks"][i][0].get<double>(), rank, 1e-12) << member;
    EXPECT_NEAR(extra["rises"][i][0][0].get<double>(), rise, 1e-12) << member;
    EXPECT_EQ(extra["rises"][i][1], extra["rises"][0][1]) << "softmax beside " << member;
  }
}

// The relative luminance of "rgb(r, g, b)", as WCAG 2 defines it.
double luminance(const std::string& color) {
  std::string digits = color;
  std::replace_if(
      digits.begin(), digits.end(), [](char c) { return !std::isdigit(c) && c != '.'; }, ' ');
  std::istringstream in(digits);
  double sum = 0;
  for (const double weight : {0.2126, 0.7152, 0.0722}) {
    double channel = -1;
    in >> channel;
    EXPECT_GE(channel, 0) << color;
    channel /= 255;
    sum += weight * (channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4));
  }
  return sum;
}

TEST_F(SlowPageInBrowser, AStudyIsAsReadableInTheDark) {
  const json seen =
      look_at(write({full_results(), study_extras()}, options_), 1000, std::string(kHands) + kOpenAll + R"(
    const prefer = (value) => browser("Emulation.setEmulatedMedia", {features: [{name: "prefers-color-scheme", value}]});
    const style = (e) => win.getComputedStyle(e);
    extra.themes = [];
    const take = (name) => extra.themes.push({
      name, ink: style(doc.body).color, ground: style(doc.body).backgroundColor, card: style(doc.querySelector(".behind table")).backgroundColor,
      ticks: Object.fromEntries(shownPlots().map((plot) => [plot.closest("section").id, style(plot.querySelector(".xtick text, .ytick text")).fill])),
      words: Object.fromEntries(shownPlots().filter((plot) => plot.querySelector(".legendtext")).map((plot) => [plot.closest("section").id, style(plot.querySelector(".legendtext")).fill])),
      drawn: shownPlots().filter((plot) => plot.querySelector(".heatmaplayer image, .scatterlayer .trace")).length,
      map: JSON.stringify(plotOf("map").data[0].colorscale), line: plotOf("rank-loss").data.at(-1).line.color,
    });
    // Colours of elements change at once, those of pictures when they have been drawn anew.
    const changed = async (from) => { await until(() => style(doc.body).color !== from.ink && plotOf("measures").layout.font.color !== from.font); await quiet(); };
    const now = () => ({ink: style(doc.body).color, font: plotOf("measures").layout.font.color});
    await prefer("light");
    await quiet();
    take("light");
    let from = now();
    await prefer("dark");
    await changed(from);
    take("dark");
    from = now();
    doc.getElementById("theme").click();
    await changed(from);
    extra.button = doc.getElementById("theme").textContent;
    take("light");
    from = now();
    doc.getElementById("theme").click();
    await changed(from);
    take("dark");)");
  expect_sound(seen, 17, 20);
  EXPECT_EQ(seen["data"]["theme"], "dark");
  EXPECT_EQ(seen["extra"]["button"], "Colours: light");
  const json& themes = seen["extra"]["themes"];
  ASSERT_EQ(themes.size(), 4u);
  const auto contrast = [](double a, double b) { return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05); };
  for (const json& theme : themes) {
    SCOPED_TRACE(theme.dump());
    const double ink = luminance(theme["ink"]), ground = luminance(theme["ground"]);
    EXPECT_EQ(theme["name"] == "dark", ink > ground);
    EXPECT_EQ(theme["drawn"], 17);
    EXPECT_EQ(theme["ticks"].size(), 17u);
    // WCAG 2 asks 4.5 of text, for pictures' as well.
    EXPECT_GE(contrast(ink, ground), 4.5);
    EXPECT_GE(contrast(ink, luminance(theme["card"])), 4.5);
    for (const char* text : {"ticks", "words"})
      for (const auto& [id, color] : theme[text].items()) EXPECT_GE(contrast(luminance(color), ground), 4.5) << id;
  }
  for (const char* key : {"ink", "ground", "card", "ticks", "words", "map", "line"}) {
    EXPECT_NE(themes[0][key], themes[1][key]) << key;
    EXPECT_EQ(themes[0][key], themes[2][key]) << key << ": chosen light in the dark";
    EXPECT_EQ(themes[1][key], themes[3][key]) << key;
  }
}

}  // namespace
}  // namespace unchain::report
