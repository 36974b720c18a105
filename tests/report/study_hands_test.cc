// What a reader does with the page of a study: points at a picture, drags over it, chooses, goes from light to dark.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "report/study_fixture.h"

namespace unchain::report {
namespace {

// What the actions below can do.
constexpr const char* kHands = R"(
  const plotOf = (id) => doc.querySelector(`#${id} .plot`);
  const shownPlots = () => [...doc.querySelectorAll("section.picture .plot")].filter((plot) => !plot.hidden);
  const set = async (id, value) => {
    const select = doc.getElementById(id);
    select.value = value;
    select.dispatchEvent(new win.Event("change"));
    await quiet();
  };
  // Where a point of a trace lies in the window.
  const pixel = (plot, trace, x, y) => {
    const {[trace.yaxis === "y2" ? "yaxis2" : "yaxis"]: yaxis, xaxis} = plot._fullLayout;
    const box = plot.getBoundingClientRect();
    return [box.left + xaxis._offset + xaxis.d2p(x), box.top + yaxis._offset + yaxis.d2p(y)];
  };
  const plain = (html) => new win.DOMParser().parseFromString(html.replaceAll("<br>", " | "), "text/html").body.textContent;
  const linesOf = (label) => {
    const lines = [...label.querySelectorAll(".nums tspan.line")];
    return lines.length ? lines.map((line) => line.textContent).join(" | ") : label.querySelector(".nums").textContent;
  };
  const drag = async ([x0, y0], [x1, y1]) => {
    await mouse("mouseMoved", x0, y0);
    await mouse("mousePressed", x0, y0, {button: "left", buttons: 1, clickCount: 1});
    for (const part of [0.25, 0.5, 0.75, 1]) await mouse("mouseMoved", x0 + part * (x1 - x0), y0 + part * (y1 - y0), {button: "left", buttons: 1});
    await mouse("mouseReleased", x1, y1, {button: "left", clickCount: 1});
    await quiet();
  };
  const ranges = (plot) => [plot._fullLayout.xaxis.range, plot._fullLayout.yaxis.range].map((range) => [...range]);
  const ticks = (plot) => [".xtick text", ".ytick text"].map((of) => [...plot.querySelectorAll(of)].map((tick) => tick.textContent));
)";

TEST_F(SlowPageInBrowser, APointOfAStudyTellsItsValue) {
  // A point of every line, dot and map of every picture: what the pointer finds there, and what is written beside it.
  const json seen = look_at(write({full_results(), study_extras()}, options_), 1200, std::string(kHands) + R"(
    extra.points = [];
    for (const plot of shownPlots()) {
      plot.scrollIntoView({block: "center", behavior: "instant"});
      for (const trace of plot.data) {
        if (trace.hoverinfo === "skip" || trace.x[0] === null) continue;
        const grid = trace.type === "heatmap";
        const i = grid ? 0 : trace.y.findIndex((y, k) => Number.isFinite(y) && Number.isFinite(trace.x[k]));
        await mouse("mouseMoved", 1, 1);
        await until(() => !plot.querySelector(".hovertext"));
        const at = pixel(plot, trace, trace.x[i], trace.y[i]);
        await mouse("mouseMoved", ...at);
        const label = await until(() => plot.querySelector(".hovertext .nums")?.textContent && plot.querySelector(".hovertext"));
        const {curveNumber, pointNumber} = plot._hoverdata[0];
        const found = plot.data[curveNumber];
        const [j, k] = [pointNumber].flat();
        const point = grid ? [found.x[k], found.y[j]] : [found.x[j], found.y[j]];
        const there = pixel(plot, found, ...point);
        extra.points.push({
          id: plot.closest("section").id, name: trace.name ?? "", far: Math.hypot(there[0] - at[0], there[1] - at[1]), shown: linesOf(label),
          text: found.text ? plain(grid ? found.text[j][k] : found.text[j]) : null,
        });
      }
    })");
  EXPECT_EQ(seen["data"].value("errors", "?"), "");
  std::vector<std::string> pictures;
  std::string all;
  for (const json& point : seen["extra"]["points"]) {
    SCOPED_TRACE(point.dump());
    if (pictures.empty() || pictures.back() != point["id"]) pictures.push_back(point["id"]);
    EXPECT_LT(point["far"].get<double>(), 12);  // where several lie together, one of them
    const std::string shown = point["shown"];
    if (point["text"].is_string()) {
      EXPECT_EQ(shown, point["text"]);
    }
    EXPECT_NE(shown.find_first_of("0123456789"), std::string::npos);
    for (const char* wrong : {"NaN", "undefined", "null", "Infinity", "[object", "%{", "<br"})
      EXPECT_EQ(shown.find(wrong), std::string::npos);
    all += point["id"].get<std::string>() + ": " + shown + "\n";
  }
  EXPECT_EQ(pictures.size(), 15u);
  for (const char* told :
       {"rank-loss: A2, each text's own | rank 1 | 1.50\u00a0nats (1.00\u00a0nats to 2.00\u00a0nats over 2 seeds)",
        "layer-ranks: softmax's map | layer 0 | 20.0", "map: 0 ‘c’ looks at | 0 ‘c’: 100\u00a0%",
        "needles: softmax, seed 1 | 0.5000", "depths: softmax | 256 tokens, depth 0\u00a0% | 2 of 8 right: 25\u00a0%",
        "lambda: the model | m = 0 | 1.00\u00a0nats", "measures: softmax, seed 0 | 3.500"})
    EXPECT_NE(all.find(told), std::string::npos) << told << "\n" << all;
}

// One model, and a map of more tokens than there is room for labels.
constexpr size_t kTokens = 96;
json long_extras() {
  json extras = study_extras();
  json& model = extras["models"][1];
  std::vector<unsigned char> codes;
  for (size_t k = 0; k < kTokens * (kTokens + 1) / 2; ++k) codes.push_back(static_cast<unsigned char>(40 + k % 200));
  model["tokens"] = json::array();
  for (size_t i = 0; i < kTokens; ++i) model["tokens"].push_back(fmt::format("t{}", i));
  const json heads = {plain_base64(codes), plain_base64(codes)};
  model["excerpt"] = {{"size", kTokens}, {"scale", "sqrt"}, {"maps", json::array({heads})}};
  extras["models"] = json::array({model});
  return extras;
}

TEST_F(SlowPageInBrowser, AStudysMapIsEnlargedByDraggingAndWholeAgain) {
  const json seen = look_at(write({full_results(), long_extras()}, options_), 1200, std::string(kHands) + R"(
    const map = plotOf("map");
    map.scrollIntoView({block: "center", behavior: "instant"});
    extra.before = {ranges: ranges(map), ticks: ticks(map)};
    await drag(pixel(map, map.data[0], 20.6, 40.6), pixel(map, map.data[0], 33.4, 58.4));
    await until(() => map._fullLayout.xaxis.range[0] > 1 && ["t21", "t22"].every((token) => ticks(map)[0].includes(token)));
    extra.after = {ranges: ranges(map), ticks: ticks(map), values: map.data[0].z.length};
    doc.getElementById("map-whole").click();
    await quiet();
    extra.whole = {ranges: ranges(map), ticks: ticks(map)};
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
  expect_sound(seen, 15, 20);
  const json& extra = seen["extra"];
  EXPECT_EQ(extra["before"]["ranges"], json({{-0.5, kTokens - 0.5}, {kTokens - 0.5, -0.5}}));
  for (const json& axis : extra["before"]["ticks"]) {
    EXPECT_GT(axis.size(), 10u);
    EXPECT_LT(axis.size(), kTokens) << "labels of a map of so many tokens would lie on each other";
  }
  const json& ranges = extra["after"]["ranges"];
  const double expected[2][2] = {{20.6, 33.4}, {58.4, 40.6}};
  for (size_t axis = 0; axis < 2; ++axis)
    for (size_t end = 0; end < 2; ++end)
      EXPECT_NEAR(ranges[axis][end].get<double>(), expected[axis][end], 0.2);  // a pixel is 0.15
  json across = json::array(), down = json::array();
  for (int i = 21; i <= 33; ++i) across.push_back(fmt::format("t{}", i));
  for (int i = 41; i <= 58; ++i) down.push_back(fmt::format("t{}", i));
  EXPECT_EQ(extra["after"]["ticks"], json::array({across, down})) << "every token in sight has its label";
  EXPECT_EQ(extra["after"]["values"], kTokens);
  EXPECT_EQ(extra["whole"], extra["before"]);
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
  expect_sound(seen, 15, 20);
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
  expect_sound(seen, 15, 20);
  EXPECT_EQ(seen["data"]["theme"], "dark");
  EXPECT_EQ(seen["extra"]["button"], "Colours: light");
  const json& themes = seen["extra"]["themes"];
  ASSERT_EQ(themes.size(), 4u);
  const auto contrast = [](double a, double b) { return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05); };
  for (const json& theme : themes) {
    SCOPED_TRACE(theme.dump());
    const double ink = luminance(theme["ink"]), ground = luminance(theme["ground"]);
    EXPECT_EQ(theme["name"] == "dark", ink > ground);
    EXPECT_EQ(theme["drawn"], 15);
    EXPECT_EQ(theme["ticks"].size(), 15u);
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
