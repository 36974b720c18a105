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

// Opens `html` (its folder must be writable), waits until it is ready, runs `actions` (JavaScript; `doc` and `win` are
// the page's) and returns {"data": dataset of the root element, "inner_width", "scroll_width", "client_width",
// "pictures": {id: {"traces", "layout", "drawn", "label"}}, "controls": [{"what", "name", "reachable"}],
// "missing": {id: text}, "headings": [levels], "lang", "requests": [addresses], "tables": {id: rows of text},
// "text": of the page}. Fails the test if Chromium gives no report.
nlohmann::json look_at(const std::filesystem::path& html, int width, const std::string& actions = "");

}  // namespace unchain::report
