// The whole program as a function.
#pragma once

namespace unchain::cli {

// Parses the arguments, runs the command that they name, prints any error on stderr, and returns the exit status.
int run(int argc, char** argv);

}  // namespace unchain::cli
