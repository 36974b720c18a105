// The files of configs/study, compiled into the program.
#pragma once

#include <string_view>

namespace unchain::study::presets {

extern const std::string_view kSmokeJson;

}  // namespace unchain::study::presets
