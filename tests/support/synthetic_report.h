// Made-up results and extras in the shapes of a real analysis, for the page to draw.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace unchain::report {

struct Synthetic {
  nlohmann::json results, extras;
};

// `layers` × `heads`, an excerpt of `tokens` tokens. The values are plausible and differ from head to head.
Synthetic synthetic(int layers, int heads, int tokens);

// The same as if one window had been measured: without intervals.
Synthetic of_one_window(Synthetic data);

// As synthetic(), with everything that can go wrong in it: nulls, missing keys, huge and tiny numbers, negative
// weights, tokens that are HTML, script ends, formats, controls.
Synthetic hostile();

// Base64 by plain loops.
std::string plain_base64(const std::vector<unsigned char>& bytes);

}  // namespace unchain::report
