// The files of configs/study, and study/claims.json, compiled into the program.
#pragma once

#include <string_view>

namespace unchain::study::presets {

extern const std::string_view kSmokeJson, kSmallJson, kFullJson, kClaimsJson;

}  // namespace unchain::study::presets
