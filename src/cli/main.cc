// The program: parses the command line, runs one command, and turns errors into the exit statuses of the manual:
// 0 done, 1 internal, 2 usage, 3 input (io, format, shape), 4 unsupported, 5 numeric.
#include "cli/program.h"

int main(int argc, char** argv) {
  return unchain::cli::run(argc, argv);
}
