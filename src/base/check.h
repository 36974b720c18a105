// Throws unchain::Error with a formatted message. Wording: where: what was found, what was expected, what to do.
#pragma once

#include <fmt/format.h>

#include "unchain/error.h"

namespace unchain {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace unchain
