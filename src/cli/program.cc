#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "unchain/error.h"

namespace unchain::cli {
namespace {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return 2;
    case ErrorCode::io:
    case ErrorCode::format:
    case ErrorCode::shape: return 3;
    case ErrorCode::unsupported: return 4;
    case ErrorCode::numeric: return 5;
    case ErrorCode::internal: return 1;
  }
  return 1;
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app{"unchain: runs language models on a CPU and measures what their attention does"};
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    std::fprintf(stderr, "unchain: %s\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unchain: internal error: %s\n", error.what());
    return 1;
  }
}

}  // namespace unchain::cli
