#include "report/page.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/check.h"
#include "base/file.h"
#include "report/encode.h"
#include "report/page_files.h"

namespace unchain::report {
namespace {

using nlohmann::json;
using Parts = std::vector<std::pair<std::string_view, std::string_view>>;

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Puts the parts in the place of their {{names}}, in one pass: what a part holds is never looked at again.
std::string fill(std::string_view text, const Parts& parts) {
  std::string out;
  while (true) {
    const size_t open = text.find("{{");
    const size_t close = open == text.npos ? text.npos : text.find("}}", open);
    if (close == text.npos) return out.append(text);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    out.append(text.substr(0, open));
    bool known = false;
    for (const auto& [part, content] : parts) {
      if (part != name) continue;
      out.append(content);
      known = true;
    }
    if (!known) fail(ErrorCode::internal, "report: page.html names an unknown part '{}'", name);
    text.remove_prefix(close + 2);
  }
}

std::string packed_text(const std::string& bytes) {
  return base64(std::as_bytes(std::span(bytes)));
}

// JSON with invalid UTF-8 replaced and numbers that are not finite as null, then gzip, then base64.
std::string pack(const json& value) {
  return packed_text(gzip(value.dump(-1, ' ', false, json::error_handler_t::replace)));
}

std::string pack_plotly(const std::filesystem::path& path) {
  if (path.empty()) return {};
  const std::string text = read_text(path, size_t{1} << 26);
  return packed_text(path.extension() == ".gz" ? text : gzip(text));
}

// Keeps the first `size` rows of every map: they are the first size·(size+1)/2 codes, so the base64 is only cut shorter
// (the page ignores the codes that are left over in the last group of four characters).
void cut_excerpt(json& excerpt, size_t size) {
  const size_t codes = size * (size + 1) / 2;
  for (const auto& [name, bytes] : {std::pair{"maps", codes}, std::pair{"signs", (codes + 7) / 8}}) {
    if (!excerpt.contains(name)) continue;
    for (json& layer : excerpt[name]) {
      for (json& head : layer) {
        if (!head.is_string()) continue;
        auto& text = head.get_ref<std::string&>();
        text.resize(std::min(text.size(), (bytes + 2) / 3 * 4));
      }
    }
  }
  excerpt["size"] = size;
}

// Cuts the excerpt of these extras, or leaves it out; false if there is none.
bool shrink_excerpt(json& extras) {
  constexpr size_t kFewestTokens = 16;
  if (!extras.is_object()) return false;
  const auto excerpt = extras.find("excerpt");
  if (excerpt == extras.end()) return false;
  const size_t size = excerpt->is_object() ? excerpt->value("size", size_t{0}) : 0;
  if (size > kFewestTokens) {
    cut_excerpt(*excerpt, std::max(kFewestTokens, size * 3 / 4));
  } else {
    extras.erase(excerpt);
  }
  return true;
}

// The next smaller form of the extras; false if nothing is left to leave out.
bool shrink(json& extras) {
  if (!extras.is_object()) return false;
  bool any = shrink_excerpt(extras);
  if (extras.contains("models") && extras["models"].is_array())
    for (json& model : extras["models"]) any = shrink_excerpt(model) || any;
  if (any) return true;
  if (extras.empty()) return false;
  extras.erase(extras.begin());
  return true;
}

// The results as the page needs them: a study's measures window by window serve its judge alone, and are most of it.
json shown_results(json results) {
  const auto runs = results.find("runs");
  if (runs == results.end() || !runs->is_array()) return results;
  for (json& run : *runs) {
    if (!run.is_object()) continue;
    if (run.contains("layers") && run["layers"].is_object())
      for (const char* key : {"gain_windows", "sensitivity_windows"}) run["layers"].erase(key);
    if (!run.contains("measures") || !run["measures"].is_object()) continue;
    for (json& measure : run["measures"])
      if (measure.is_object()) measure.erase("windows");
  }
  return results;
}

// What differs between the pages of the commands.
struct Kind {
  std::string_view command, title, alone, intervals;  // `alone`: the title without a name
};
constexpr Kind kAnalysis = {
    "analyze", "Attention of ", "Attention maps",
    "Layers, heads and tokens are counted from 0. An interval is the 95 % bootstrap interval of "
    "the mean over windows; one window has none."};
constexpr Kind kNeedle = {"needle", "Needles found by ", "Needles",
                          "Layers and heads are counted from 0. Intervals of accuracy are 95 % Wilson intervals, those "
                          "of attention 95 % bootstrap intervals of the mean over samples; one sample has none."};

constexpr Kind kStudy = {"study", "Study: ", "Study",
                         "A seed fixes the first weights and the order of the data. Intervals are 95 % intervals over "
                         "seeds, those of needles 95 % Wilson intervals over questions."};
constexpr Kind kCompare = {"compare", "Comparison: ", "Comparison",
                           "Intervals are 95 % bootstrap intervals over what all models have read: windows of a text, "
                           "prompts, questions; those of differences are of the differences, unit by unit."};
constexpr const Kind* kKinds[] = {&kAnalysis, &kNeedle, &kStudy, &kCompare};

std::string make_title(const Kind& kind, const json& results, const std::string& title) {
  if (!title.empty()) return title;
  const auto text = [&](const char* part, const char* key) {
    const json& group = results.contains(part) ? results[part] : json();
    return group.is_object() && group.contains(key) && group[key].is_string() ? group[key].get<std::string>() : "";
  };
  for (const auto& [part, key] : {std::pair{"model", "name"}, std::pair{"settings", "model"},
                                  std::pair{"model", "architecture"}, std::pair{"settings", "description"}}) {
    if (std::string name = text(part, key); !name.empty()) {
      return std::string(kind.title) + std::filesystem::path(name).filename().string();
    }
  }
  return std::string(kind.alone);
}

}  // namespace

std::filesystem::path find_plotly(const std::filesystem::path& program_dir) {
  std::vector<std::filesystem::path> folders;
  if (const char* share = std::getenv("UNCHAIN_SHARE"); share != nullptr && *share != '\0') folders.emplace_back(share);
  folders.push_back(program_dir / ".." / "share" / "unchain");
  folders.push_back(program_dir / "share" / "unchain");
  for (const auto& folder : folders) {
    for (const char* name : {"plotly.min.js.gz", "plotly.min.js"}) {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(folder / name, ignored)) return folder / name;
    }
  }
  return {};
}

void write_page(const std::filesystem::path& html, const json& results, const json& extras,
                const PageOptions& options) {
  if (!results.is_object())
    fail(ErrorCode::usage, "report: results is {}, expected a JSON object", results.type_name());
  const json command = results.value("command", json());
  const auto known =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind* k) { return command == k->command; });
  const Kind& kind = known == std::end(kKinds) ? kAnalysis : **known;
  const std::string title = escape_html(make_title(kind, results, options.title));
  const std::string plotly = pack_plotly(options.plotly);
  const json shown = shown_results(results);
  json kept = extras.is_object() ? extras : json::object();
  while (true) {
    const std::string data = pack({{"results", shown}, {"extras", kept}});
    const std::string page = fill(files::kPageHtml, {{"title", title},
                                                     {"command", kind.command},
                                                     {"intervals", kind.intervals},
                                                     {"style", files::kPageCss},
                                                     {"data", data},
                                                     {"plotly", plotly},
                                                     {"claims_page", &kind == &kStudy ? files::kClaimsMd : ""},
                                                     {"measures", files::kMeasuresJs},
                                                     {"theme", files::kThemeJs},
                                                     {"figures", files::kFiguresJs},
                                                     {"limits", files::kLimitsJs},
                                                     {"maps", files::kMapsJs},
                                                     {"needle", files::kNeedleJs},
                                                     {"study", files::kStudyJs},
                                                     {"study_claims", files::kStudyClaimsJs},
                                                     {"study_curves", files::kStudyCurvesJs},
                                                     {"study_layers", files::kStudyLayersJs},
                                                     {"study_page", files::kStudyPageJs},
                                                     {"compare", files::kCompareJs},
                                                     {"page", files::kPageJs}});
    if (page.size() < kPageLimit) return write_text(html, page);
    if (!shrink(kept)) {
      fail(ErrorCode::usage, "report: {}: the page needs {} bytes, limit {}; analyse fewer layers or measures",
           html.string(), page.size(), kPageLimit);
    }
  }
}

}  // namespace unchain::report
