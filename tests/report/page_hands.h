// What a reader does with any page: points at its pictures, drags over a map, takes the CSV of every choice. And what
// must come of it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "report/page_fixture.h"

namespace unchain::report {

// What the other actions can do.
inline constexpr const char* kHands = R"(
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

// A point of every line, dot and map of every picture: what the pointer finds there, and what is written beside it.
inline constexpr const char* kPointAtAll = R"(
  extra.points = [];
  for (const plot of shownPlots()) {
    plot.scrollIntoView({block: "center", behavior: "instant"});
    for (const trace of plot.data) {
      if (trace.hoverinfo === "skip" || trace.x[0] === null) continue;
      const grid = trace.type === "heatmap";
      const i = grid ? 0 : trace.y.findIndex((y, k) => Number.isFinite(y) && Number.isFinite(trace.x[k]));
      await mouse("mouseMoved", 1, 1);
      await until(() => !plot.querySelector(".hovertext"));
      const within = trace.type === "bar" ? 0.5 : 1;  // a bar is pointed at in its middle, not at its edge
      const at = pixel(plot, trace, trace.x[i], within * trace.y[i]);
      await mouse("mouseMoved", ...at);
      const label = await until(() => plot.querySelector(".hovertext .nums")?.textContent && plot.querySelector(".hovertext")).catch((error) => { throw new Error(`${plot.closest("section").id}, ${trace.name}: ${error.message}`); });
      const {curveNumber, pointNumber} = plot._hoverdata[0];
      const found = plot.data[curveNumber];
      const [j, k] = [pointNumber].flat();
      const point = grid ? [found.x[k], found.y[j]] : [found.x[j], within * found.y[j]];
      const there = pixel(plot, found, ...point);
      extra.points.push({
        id: plot.closest("section").id, name: trace.name ?? "", far: Math.hypot(there[0] - at[0], there[1] - at[1]), shown: linesOf(label),
        text: found.text ? plain(grid ? found.text[j][k] : found.text[j]) : null,
      });
    }
  })";

// Takes what is plotted and what "Download CSV" gives, of all pictures at each of their choices.
inline constexpr const char* kTakeAll = R"(
  let blob, name;
  const make = win.URL.createObjectURL.bind(win.URL);
  win.URL.createObjectURL = (file) => { blob = file; return make(file); };
  win.HTMLAnchorElement.prototype.click = function () { name = this.download; };
  const labels = (axis) => (axis.tickmode === "array" ? axis.tickvals.map((at, i) => [at, axis.ticktext[i]]) : []);
  extra.shown = [];
  const take = async (section, choice) => {
    await quiet();
    const plot = section.querySelector(".plot");
    if (plot.hidden) return;
    section.querySelector(".behind button").click();
    const {xaxis, yaxis} = plot._fullLayout;
    extra.shown.push({
      id: section.id, choice, name, csv: await blob.text(), x_labels: labels(xaxis), y_labels: labels(yaxis),
      traces: plot.data.filter((t) => t.hoverinfo !== "skip" && t.x[0] !== null || section.id.startsWith("claim")).map(({type, name, x, y, z, error_x, error_y}) => ({type, name, x, y, z, error_x, error_y})),
    });
  };
  for (const section of doc.querySelectorAll("section.picture")) {
    if (!section.querySelector(".plot")) continue;
    await take(section, "");
    for (const select of section.querySelectorAll("select")) {
      const before = select.value;
      const set = (value) => { select.value = value; select.dispatchEvent(new win.Event("change")); };
      for (const {value} of [...select.options]) if (value !== before) { set(value); await take(section, value); }
      set(before);
    }
  }
  await quiet();
  doc.querySelector("#figures .behind button").click();
  extra.figures = await blob.text();)";

// Drags over a map of kTokens tokens and makes it whole again.
inline constexpr const char* kEnlargeMap = R"(
  const map = plotOf("map");
  map.scrollIntoView({block: "center", behavior: "instant"});
  extra.before = {ranges: ranges(map), ticks: ticks(map)};
  await drag(pixel(map, map.data[0], 20.6, 40.6), pixel(map, map.data[0], 33.4, 58.4));
  await until(() => map._fullLayout.xaxis.range[0] > 1 && ["t21", "t22"].every((token) => ticks(map)[0].includes(token)));
  extra.after = {ranges: ranges(map), ticks: ticks(map), values: map.data[0].z.length};
  doc.getElementById("map-whole").click();
  await quiet();
  extra.whole = {ranges: ranges(map), ticks: ticks(map)};)";

// More tokens than there is room for labels, and a map of them.
inline constexpr size_t kTokens = 96;
inline nlohmann::json long_tokens() {
  nlohmann::json tokens = nlohmann::json::array();
  for (size_t i = 0; i < kTokens; ++i) tokens.push_back(fmt::format("t{}", i));
  return tokens;
}
inline std::string long_map() {
  std::vector<unsigned char> codes;
  for (size_t k = 0; k < kTokens * (kTokens + 1) / 2; ++k) codes.push_back(static_cast<unsigned char>(40 + k % 200));
  return plain_base64(codes);
}

// Of kEnlargeMap.
inline void expect_enlarged(const nlohmann::json& extra) {
  using nlohmann::json;
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
}

// Of kPointAtAll: all that is told, a line a point, and the pictures that tell. `whole`: a point tells its text and no
// more.
struct Told {
  std::vector<std::string> pictures;
  std::string all;
};
inline Told expect_told(const nlohmann::json& points, bool whole) {
  Told told;
  for (const nlohmann::json& point : points) {
    SCOPED_TRACE(point.dump());
    if (told.pictures.empty() || told.pictures.back() != point["id"]) told.pictures.push_back(point["id"]);
    EXPECT_LT(point["far"].get<double>(), 12);  // where several lie together, one of them
    const std::string shown = point["shown"];
    if (point["text"].is_string()) {
      if (whole) {
        EXPECT_EQ(shown, point["text"]);
      } else {
        EXPECT_TRUE(shown.starts_with(point["text"].get<std::string>()));
      }
    }
    EXPECT_NE(shown.find_first_of("0123456789"), std::string::npos);
    for (const char* wrong : {"NaN", "undefined", "null", "Infinity", "[object", "%{", "<br"})
      EXPECT_EQ(shown.find(wrong), std::string::npos);
    told.all += point["id"].get<std::string>() + ": " + shown + "\n";
  }
  return told;
}

}  // namespace unchain::report
