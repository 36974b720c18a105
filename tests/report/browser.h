// Opens a page in headless Chromium, in a frame of a chosen width, uses its controls and reports what it looks like.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace unchain::report {

// Chromium's command, or "" if none is installed.
std::string find_chromium();

// A plotly.min.js that the set-up has fetched, or an empty path.
std::filesystem::path find_test_plotly();

// Opens `html` (its folder must be writable; "#…" behind its name opens it there) in a window of this width, waits
// until it is ready, runs `actions` and returns {"data": dataset of the root element, "inner_width", "scroll_width",
// "client_width", "pictures": {id:
// {"traces", "layout", "drawn", "label"}}, "controls": [{"what", "name", "reachable"}], "missing": {id: text},
// "headings": [levels], "lang", "requests": [addresses], "tables": {id: rows of text}, "text": of the page, "extra"}.
// Throws if there is no such report, with the reason. Actions are JavaScript in the page, with
//   doc, win, extra        the document, its window, an object for what the test wants to know besides
//   quiet(), until(f)      wait until all drawing has ended, until f() holds
//   mouse(type, x, y)      moves or presses the mouse (Input.dispatchMouseEvent)
//   browser(name, object)  any method of the DevTools protocol
nlohmann::json look_at(const std::filesystem::path& html, int width, const std::string& actions = "");

}  // namespace unchain::report
