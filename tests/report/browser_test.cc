#include "report/browser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "report/page.h"

namespace unchain::report {
namespace {

constexpr const char* kProbe = R"js(
const frame = document.querySelector("iframe");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
function nameOf(e) {
  return (e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join() || e.textContent).trim();
}
function isVisible(e) {
  return e.checkVisibility();
}
function look(win, doc) {
  const root = doc.documentElement;
  const sections = [...doc.querySelectorAll("section.picture")];
  const pictures = {}, missing = {}, tables = {};
  for (const section of sections) {
    const plot = section.querySelector(".plot");
    const sentence = section.querySelector(".sentence").textContent;
    if (plot && isVisible(plot)) {
      const plain = (trace) => ({type: trace.type, name: trace.name, x: trace.x, y: trace.y, z: trace.z, text: trace.text});
      pictures[section.id] = {
        traces: (plot.data ?? []).map(plain), drawn: plot.querySelectorAll(".heatmaplayer image, .scatterlayer .trace, .barlayer .trace").length,
        ticks: [...plot.querySelectorAll(".xtick text")].map((t) => t.textContent), label: plot.getAttribute("aria-label"), sentence,
      };
    } else if (plot) {
      missing[section.id] = sentence;
    }
    tables[section.id] = [...section.querySelectorAll("table tr")].map((row) => [...row.cells].map((c) => c.textContent));
  }
  const controls = [...doc.querySelectorAll("a, button, select, input, summary, .scroll")].filter(isVisible);
  return {
    data: {...root.dataset}, inner_width: win.innerWidth, scroll_width: root.scrollWidth, client_width: root.clientWidth, pictures, missing, tables,
    controls: controls.map((e) => {
      e.focus();
      return {what: e.tagName + "#" + e.id, name: nameOf(e), reachable: e.tabIndex >= 0 && !e.disabled && doc.activeElement === e};
    }),
    headings: [...doc.querySelectorAll("h1, h2, h3, h4")].map((h) => Number(h.tagName[1])), lang: root.lang,
    requests: win.performance.getEntriesByType("resource").map((r) => r.name), text: doc.body.innerText, foreign: doc.querySelectorAll("img, iframe, b > b, .plot a").length,
  };
}
// Time here is virtual and runs ahead of what other threads unpack on a busy machine: wait long, it costs nothing.
async function report() {
  const win = frame.contentWindow;
  for (let i = 0; i < 6000 && frame.contentDocument?.documentElement?.dataset?.ready !== "yes"; ++i) await pause(50);
  const doc = frame.contentDocument;
  const extra = {};
  await (async () => { ACTIONS })();
  await pause(300);
  return {...look(win, doc), extra};
}
report().catch((e) => ({failed: String(e)})).then((value) => {
  document.body.append(Object.assign(document.createElement("pre"), {id: "probe", textContent: encodeURIComponent(JSON.stringify(value))}));
});
)js";

std::string from_percents(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 65536> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

}  // namespace

std::string find_chromium() {
  for (const std::string name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (!output_of("command -v " + name).empty()) return name;
  }
  return "";
}

std::filesystem::path find_test_plotly() {
  const std::filesystem::path fetched = std::filesystem::path(UNCHAIN_SOURCE_DIR) / ".cache" / "plotly.min.js";
  const auto installed = find_plotly(std::filesystem::path(UNCHAIN_PROGRAM).parent_path());
  return installed.empty() && std::filesystem::exists(fetched) ? fetched : installed;
}

nlohmann::json look_at(const std::filesystem::path& html, int width, const std::string& actions) {
  const auto folder = html.parent_path();
  std::string probe = kProbe;
  probe.replace(probe.find("ACTIONS"), 7, actions);
  const auto frame = folder / (html.stem().string() + fmt::format(".frame-{}.html", width));
  std::ofstream(frame) << "<!doctype html><body><iframe src=\"" << html.filename().string()
                       << "\" style=\"border:0;width:" << width << "px;height:900px\"></iframe><script>" << probe
                       << "</script>";
  const std::string command = fmt::format(
      "timeout 120 {} --headless=new --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files "
      "--window-size=1600,1000 "
      "--user-data-dir='{}' --virtual-time-budget=400000 --dump-dom 'file://{}' 2>/dev/null",
      find_chromium(), (folder / "profile").string(), frame.string());
  const std::string dom = output_of(command), open = "<pre id=\"probe\">";
  const size_t start = dom.find(open);
  if (start == dom.npos) {
    ADD_FAILURE() << "no report from: " << command << "\n" << dom.substr(0, 2000);
    return nlohmann::json::object();
  }
  const size_t from = start + open.size();
  return nlohmann::json::parse(from_percents(dom.substr(from, dom.find("</pre>", from) - from)));
}

}  // namespace unchain::report
