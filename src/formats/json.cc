#include "formats/json.h"

#include <cstdlib>
#include <set>
#include <vector>

#include "base/check.h"
#include "formats/text.h"

namespace unchain::formats {

nlohmann::json parse_json(std::string_view text, const std::string& where, int depth, bool comments) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int level, Event event, nlohmann::json& value) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (level >= depth)
          fail(ErrorCode::format, "{}: JSON is nested more than {} levels deep; the file is damaged", where, depth);
        if (event == Event::object_start) keys.emplace_back();
        break;
      case Event::object_end:
        keys.pop_back();
        break;
      case Event::key: {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) {
          fail(ErrorCode::format, "{}: key \"{}\" appears twice in one JSON object; the file is damaged", where,
               printable(key));
        }
        break;
      }
      default:
        break;
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch, true, comments);
  } catch (const nlohmann::json::parse_error& e) {
    if (e.byte > text.size())
      fail(ErrorCode::format,
           "{}: not valid JSON: it ends too early, after {} bytes; the file is damaged or incomplete", where,
           text.size());
    fail(ErrorCode::format, "{}: not valid JSON at byte {} of {}; the file is damaged", where, e.byte, text.size());
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::format, "{}: not valid JSON ({}); the file is damaged", where, printable(e.what()));
  }
}

double rounded(double value, int digits) {
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

}  // namespace unchain::formats
