// Bytes made smaller for a page: gzip (RFC 1952, by zlib).
#pragma once

#include <string>
#include <string_view>

namespace unchain::report {

// The gzip file of these bytes, at zlib's best level; equal input gives equal output (no name, no time inside).
// Errors: internal if zlib fails (no memory) or the input has 4 GiB or more.
std::string gzip(std::string_view bytes);

}  // namespace unchain::report
