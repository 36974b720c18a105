// The whole program as a function.
#pragma once

#include <filesystem>

#include "unchain/error.h"

namespace unchain::cli {

// Parses the arguments, runs the command that they name, prints any error on stderr, and returns the exit status:
// 0 done, 1 internal, 2 usage, 3 input (io, format, shape), 4 unsupported, 5 numeric.
int run(int argc, char** argv);

// The exit status for an error of this code.
int exit_status(ErrorCode code);

// The folder of the running program, where it looks for what is installed beside it.
std::filesystem::path program_folder();

}  // namespace unchain::cli
