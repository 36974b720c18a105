// The page of an analysis, of needle results, of a study or of a comparison: one HTML file that needs no network, holds
// results.json and the pictures drawn from it; the key "command" says which.
//
// `results` is results.json as it is written beside the page. `extras` is what only the pictures need; every part may
// be absent, the page then leaves that picture out and says so:
//   "tokens"     [T] strings: the text of the first tokens of the first window, as a reader would see it
//   "excerpt"    "size": T, "scale": "sqrt", "maps": [layer][head] -> base64 of T·(T+1)/2 codes (u8), the lower
//   triangle
//                row by row, code = round(255·sqrt(|weight|)); "signs": [layer][head] -> base64 of as many bits, lowest
//                bit of a byte first, 1 for a negative weight (absent or null where no weight is negative)
//   "spectra"    [layer][head] -> singular values of the block, largest first, divided by the largest
//   "histograms" "entropy_normalised" and "log10_weight": each "edges": [bins + 1], "counts": [layer][head][bins]
//   "needle_row" of needle results: one row of every map, the one that predicts the first digit of an answer. "tokens":
//                [keys] strings; "number": [first, last + 1] of the keys that are the answer; "city", "answer" (the
//                number), "text" (what the model said), "right", "length", "depth", "sample"; "layers": [{"layer",
//                "positive": [head][keys], "noise": likewise or null, "lambda": [head] or null}]; four digits
//   "models"     of a study or comparison: [{"name", "layers": as in results.json, "tokens", "excerpt", "spectra"}]
// A layer or head without an entry is null. Strings may hold anything: they are never read as HTML or script.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace unchain::report {

struct PageOptions {
  std::string title;  // heading of the page; empty: named after the model in `results`
  std::filesystem::path
      plotly;  // plotly.min.js or plotly.min.js.gz; empty: tables only, and the page says what is missing
};

// Every page stays below this many bytes.
inline constexpr size_t kPageLimit = 5'000'000;

// Where plotly.min.js (or plotly.min.js.gz) lies: in $UNCHAIN_SHARE, else in ../share/unchain or share/unchain beside
// the program's folder; an empty path if it is in none of them.
std::filesystem::path find_plotly(const std::filesystem::path& program_dir);

// Writes the page to `html`, whole or not at all. If it would pass kPageLimit, the excerpts of the maps (of all models)
// are cut to fewer tokens, then the extras are left out one by one. Errors: io (plotly not readable, html not
// writable); usage if `results` is not an object or the page is too large even without extras.
void write_page(const std::filesystem::path& html, const nlohmann::json& results, const nlohmann::json& extras,
                const PageOptions& options = {});

}  // namespace unchain::report
