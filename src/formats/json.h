// JSON from strangers: limited depth, no duplicate keys, errors as unchain::Error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace unchain::formats {

// Parses a whole JSON text. `where` names the source in messages. Errors: format (not JSON, not UTF-8, the same key
// twice in one object, arrays and objects nested deeper than `depth`). `comments`: // and /* */ are allowed.
nlohmann::json parse_json(std::string_view text, const std::string& where, int depth = 32, bool comments = false);

// The number with so many significant digits, which JSON then writes as shortly.
double rounded(double value, int digits);

}  // namespace unchain::formats
