#include "unchain/error.h"

namespace unchain {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::io:
      return "io";
    case ErrorCode::format:
      return "format";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::shape:
      return "shape";
    case ErrorCode::numeric:
      return "numeric";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

}  // namespace unchain
