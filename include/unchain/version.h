// The version of the library.
#pragma once

// The version that a program is compiled with, for example "0.1.0".
#define UNCHAIN_VERSION "0.1.0"

namespace unchain {

// The version that is linked, for example "0.1.0".
const char* version() noexcept;

}  // namespace unchain
