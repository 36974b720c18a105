#include "cli/program.h"
#include "unchain/version.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/thread.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "formats/text.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::cli {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::io:
    case ErrorCode::format:
    case ErrorCode::shape:
      return 3;
    case ErrorCode::unsupported:
      return 4;
    case ErrorCode::numeric:
      return 5;
    case ErrorCode::internal:
      return 1;
  }
  return 1;
}

namespace {

// Error: usage, with the nearest command, if the program has none of this name.
void check_command(const CLI::App& app, const std::string& word) {
  std::string nearest;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    if (name == word) return;
    if (nearest.empty() || formats::edit_distance(word, name) < formats::edit_distance(word, nearest)) nearest = name;
  }
  fail(ErrorCode::usage, "'{}' is no command; did you mean '{}'? 'unchain --help' lists all", formats::printable(word),
       nearest);
}

std::string version() {
  return fmt::format("unchain {}\nvector kernels  {}\nproducts        {}\nbf16            {}\nthreads         {}",
                     UNCHAIN_VERSION, simd::target_name(), ops::gemm_backend(),
                     ops::has_fast_bf16() ? "in hardware" : "through f32", threads());
}

}  // namespace

std::filesystem::path program_folder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : self.parent_path();
}

int run(int argc, char** argv) {
  watch_interrupts();
  // A file that grows beyond the user's limit is an error of ours, which cleans up, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app{
      "unchain runs pretrained language models on a CPU and measures what their attention does.\nMODEL is a GGUF file, "
      "a Hugging Face folder, or a run folder."};
  app.name("unchain");
  app.require_subcommand(1);
  app.set_version_flag("--version", version);
  app.footer(
      "'unchain COMMAND --help' lists the options of a command.\nExit status: 0 done, 1 internal error, 2 usage, 3 "
      "input, 4 unsupported, 5 numeric.");
  for (const auto add : {add_inspect, add_tokenize, add_logits, add_generate, add_perplexity, add_analyze, add_capture,
                         add_export, add_vocabulary, add_train, add_needle, add_choice, add_compare, add_study})
    add(app);
  try {
    if (argc < 2) fail(ErrorCode::usage, "give a command; 'unchain --help' lists them");
    if (argv[1][0] != '-') check_command(app, argv[1]);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    wait_if_interrupted();
    const bool unsupported = error.code() == ErrorCode::unsupported;  // sound, but not ours: said in so many words
    std::fprintf(stderr, "unchain: %s%s\n", unsupported ? "unsupported: " : "", error.what());
    return exit_status(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    wait_if_interrupted();
    std::fprintf(stderr, "unchain: %s\n", error.what());
    return exit_status(ErrorCode::io);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "unchain: out of memory; try a smaller --window or model\n");
    return exit_status(ErrorCode::io);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unchain: internal error: %s\n", error.what());
    return exit_status(ErrorCode::internal);
  }
}

}  // namespace unchain::cli
