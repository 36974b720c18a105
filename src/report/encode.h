// Bytes into text that a page can carry: gzip (RFC 1952, by zlib) and base64 (RFC 4648, with padding).
#pragma once

#include <string>
#include <string_view>

namespace unchain::report {

// The gzip file of these bytes, at zlib's best level; equal input gives equal output (no name, no time inside).
// Errors: internal if zlib fails (no memory) or the input has 4 GiB or more.
std::string gzip(std::string_view bytes);

// Base64 of these bytes, one line, padded with '='.
std::string base64(std::string_view bytes);

}  // namespace unchain::report
