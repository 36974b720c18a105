#include "report/browser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>

#include "report/devtools.h"
#include "report/page.h"
#include "support/temporary_folder.h"

namespace unchain::report {
namespace {

constexpr const char* kProbe = R"js((async () => {
const win = window, doc = document;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// Waits for a condition, as long as a machine that does much else may need.
async function until(holds) {
  for (let i = 0; i < 6000; ++i) {
    const value = await holds();
    if (value) return value;
    await pause(20);
  }
  throw new Error(`never: ${holds}`);
}
// Until all drawings that have begun are done and every opened table is there.
let drawing = 0;
function watchDrawing() {
  const react = win.Plotly?.react;
  if (!react) return;
  win.Plotly.react = async (...all) => {
    ++drawing;
    try { return await react(...all); } finally { --drawing; }
  };
}
async function quiet() {
  await pause(0);
  const filled = () => [...doc.querySelectorAll("details.behind[open]")].every((table) => table.hidden || table.querySelector("table"));
  await until(() => drawing === 0 && filled());
}
// What only the browser can do: methods of its protocol.
const replies = new Map();
let asked = 0;
win.unchainReply = (id, value, error) => {
  const {resolve, reject} = replies.get(id);
  replies.delete(id);
  if (error) reject(new Error(JSON.stringify(error))); else resolve(value);
};
const browser = (method, params) => new Promise((resolve, reject) => {
  const id = ++asked;
  replies.set(id, {resolve, reject});
  win.unchainAsk(JSON.stringify({id, method, params}));
});
const mouse = (type, x, y, more = {}) => browser("Input.dispatchMouseEvent", {type, x, y, ...more});
function nameOf(e) {
  return (e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join() || e.textContent).trim();
}
function isVisible(e) {
  return e.checkVisibility();
}
function look() {
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
await until(() => doc.documentElement?.dataset.ready === "yes");
watchDrawing();
const extra = {};
await (async () => { ACTIONS })();
await quiet();
return JSON.stringify({...look(), extra});
})())js";

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 65536> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

TEST(DevToolsTest, ABrowserThatEndsIsAnErrorThatSaysWhy) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "browser") << "#!/bin/sh\necho no display >&2\n";
  std::filesystem::permissions(folder / "browser", std::filesystem::perms::owner_all);
  DevTools browser((folder / "browser").string(), folder.path());
  try {
    while (true) browser.call("Browser.getVersion");
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("Browser.getVersion: "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("no display"), std::string::npos) << error.what();
  }
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
  using Json = nlohmann::json;
  DevTools browser(find_chromium(), html.parent_path());
  browser.call("Browser.setDownloadBehavior", {{"behavior", "deny"}});
  const Json page = browser.call("Target.createTarget", {{"url", "about:blank"}});
  const Json attached = browser.call("Target.attachToTarget", {{"targetId", page.at("targetId")}, {"flatten", true}});
  browser.session = attached.at("sessionId");
  browser.call("Emulation.setDeviceMetricsOverride",
               {{"width", width}, {"height", 900}, {"deviceScaleFactor", 1}, {"mobile", false}});
  // What the page asks of the browser, by the number of our message: its own number, to be answered under.
  std::map<int, int> asked;
  browser.on_other = [&](const Json& message) {
    if (message.value("method", "") == "Runtime.bindingCalled") {
      const Json wish = Json::parse(message["params"]["payload"].get<std::string>());
      asked[browser.send(wish["method"], wish["params"])] = wish["id"];
    } else if (const auto found = asked.find(message.value("id", 0)); found != asked.end()) {
      const std::string answer = message.value("result", Json()).dump(), error = message.value("error", Json()).dump();
      const std::string expression = fmt::format("unchainReply({}, {}, {})", found->second, answer, error);
      browser.send("Runtime.evaluate", {{"expression", expression}});
      asked.erase(found);
    }
  };
  browser.call("Runtime.enable");
  browser.call("Runtime.addBinding", {{"name", "unchainAsk"}});
  browser.call("Page.navigate", {{"url", "file://" + html.string()}});
  std::string probe = kProbe;
  probe.replace(probe.find("ACTIONS"), 7, actions);
  const Json done =
      browser.call("Runtime.evaluate", {{"expression", probe}, {"awaitPromise", true}, {"returnByValue", true}});
  if (done.contains("exceptionDetails")) throw std::runtime_error(done["exceptionDetails"].dump());
  return Json::parse(done.at("result").at("value").get<std::string>());
}

}  // namespace unchain::report
