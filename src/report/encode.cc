#include "report/encode.h"

#include <zlib.h>

#include <limits>

#include "base/check.h"

namespace unchain::report {

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;  // zlib's way of asking for the gzip wrapper
  if (bytes.size() >= std::numeric_limits<uInt>::max() ||
      deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    fail(ErrorCode::internal, "report: {} bytes cannot be compressed by zlib", bytes.size());
  }
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) fail(ErrorCode::internal, "report: zlib stopped with status {}", status);
  return out;
}

}  // namespace unchain::report
