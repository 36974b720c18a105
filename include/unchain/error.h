// The one error type of the library: a code that says whose fault it is, and a message that says where, what was found,
// what was expected and what to do. The library throws it for anything that a caller or a file can cause; it never
// prints, exits or aborts.
#pragma once

#include <stdexcept>
#include <string>

namespace unchain {

// Whose fault an error is.
enum class ErrorCode {
  usage,        // the caller asked for something that makes no sense (option, argument, name)
  io,           // the system refused: no such file, no permission, disk full
  format,       // the file is damaged or is not what it says it is
  unsupported,  // the file or request is sound, but this version does not do it
  shape,        // tensor sizes disagree with each other or with the configuration
  numeric,      // a NaN or an infinity where a number must be
  internal,     // a broken promise of our own code
};

// What the library throws: what() is the message, code() says whose fault it is.
class Error : public std::runtime_error {
 public:
  // The message stands as it is given.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }  // for callers that tell errors apart

 private:
  ErrorCode code_;
};

// The code's name as in the enumeration, for example "format".
const char* to_string(ErrorCode code) noexcept;

}  // namespace unchain
