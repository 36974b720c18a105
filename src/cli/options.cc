#include "cli/options.h"
#include "unchain/version.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <limits>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/thread.h"
#include "cli/interrupt.h"
#include "ops/gemm.h"
#include "report/table.h"
#include "simd/kernels.h"

namespace unchain::cli {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

void add_model(CLI::App& command, Common& common) {
  command.add_option("model", common.model, "GGUF file, Hugging Face folder, or run folder")
      ->required()
      ->type_name("MODEL");
}

void add_output(CLI::App& command, Common& common) {
  command
      .add_option("--json", common.json, "write the result as JSON to this file; '-': to stdout in place of the text")
      ->type_name("FILE")
      ->group("Output");
}

void add_compute(CLI::App& command, Common& common) {
  command.add_option("--threads", common.threads, "threads to use; 0: OMP_NUM_THREADS, or one a processor")
      ->default_val(0)
      ->group("Compute")
      ->check(CLI::Range(0, 4096));
  command
      .add_option("--dtype", common.dtype,
                  "type of weights and products; default: bf16 where the processor multiplies it, else f32")
      ->type_name("f32|bf16")
      ->group("Compute")
      ->check(CLI::IsMember({"f32", "bf16"}));
}

void add_pretokenizer(CLI::App& command, Common& common, const std::string& group) {
  command
      .add_option("--pretokenizer", common.pretokenizer,
                  "split words by this known pattern in place of the one that the file names")
      ->type_name("NAME")
      ->group(group);
}

void add_text_reading(CLI::App& command, Common& common) {
  command
      .add_flag("--special", common.special,
                "read the names of control tokens in the text as those tokens; default: as plain text")
      ->group("Text");
  add_pretokenizer(command, common, "Text");
}

void add_seed(CLI::App& command, Common& common) {
  command.add_option("--seed", common.seed, "seed of random numbers; the same seed gives the same result")
      ->default_val(0)
      ->group("Compute");
}

void prepare(const Common& common) {
  if (!common.json.empty() && !common.json_to_stdout()) {
    claim_output(common.json);
  }
  set_threads(common.threads);
}

namespace {

std::unique_ptr<tokenizer::Tokenizer> read_tokenizer(const model::ModelFile& file, const Common& common,
                                                     const std::string& otherwise) {
  try {
    return file.tokenizer(common.pretokenizer);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::usage) throw;
    fail(error.code(), "{}; {}", error.what(), otherwise);
  }
}

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const model::ModelFile& file, const Common& common,
                                                     const std::string& otherwise) {
  auto result = read_tokenizer(file, common, otherwise);
  for (const std::string& warning : result->warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (result->size() > file.config().vocabulary) {
    std::fprintf(stderr, "warning: the tokenizer has %d pieces, the model only %ld rows for them\n", result->size(),
                 static_cast<long>(file.config().vocabulary));
  }
  return result;
}

void warn_beyond_context(const model::ModelFile& file, int64_t tokens, const std::string& what) {
  const int64_t context = file.config().context;
  if (tokens > context) {
    std::fprintf(stderr, "warning: %s: beyond the %ld positions that the model was trained for\n", what.c_str(),
                 static_cast<long>(context));
  }
}

namespace {

// `limit`: all ids must be below it. A file's messages name the line.
std::vector<int32_t> ids_in(std::string_view text, const std::string& source, int64_t limit, ErrorCode code) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t' || *at == '\r' || *at == '[' || *at == ']') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    const auto where = [&] {
      if (code == ErrorCode::usage) return source;
      return fmt::format("{}: line {}", source, 1 + std::count(text.data(), at, '\n'));
    };
    if (error != std::errc() || id < 0) {
      fail(code, "{}: '{}' is no token id, expected numbers from 0 with commas or blanks between", where(),
           report::printable(std::string_view(at, std::min<size_t>(12, static_cast<size_t>(end - at)))));
    }
    if (id >= limit)
      fail(code, "{}: token {} has id {}, but the model has the ids 0 to {}", where(), ids.size(), id, limit - 1);
    ids.push_back(id);
    at = next;
  }
  if (ids.empty()) fail(code, "{}: has no token ids", source);
  return ids;
}

}  // namespace

std::vector<int32_t> parse_ids(const std::string& list) {
  return ids_in(list, "--ids", std::numeric_limits<int64_t>::max(), ErrorCode::usage);
}
std::vector<int32_t> read_ids(const std::string& path, int64_t vocabulary) {
  return ids_in(read_text(path), path, vocabulary, ErrorCode::format);
}

std::string read_text_file(const std::string& path) {
  std::string text = read_text(path);
  if (text.empty()) fail(ErrorCode::format, "{}: is empty, expected text", path);
  return text;
}

nlohmann::json describe_run(const Common& common, DType dtype) {
  (void)common;
  return {{"dtype", info(dtype).name},
          {"threads", threads()},
          {"isa", fmt::format("{}; {}", simd::target_name(), ops::gemm_backend())},
          {"version", UNCHAIN_VERSION}};
}

nlohmann::ordered_json describe_machine() {
  return {{"version", UNCHAIN_VERSION},
          {"processor", processor_name()},
          {"processors", std::thread::hardware_concurrency()},
          {"threads", threads()},
          {"isa", simd::target_name()},
          {"products", ops::gemm_backend()}};
}

void print_result(const Common& common, const nlohmann::json& result, const std::string& text) {
  const std::string dump = result.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::string& out = common.json_to_stdout() ? dump : text;
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0)
    fail(ErrorCode::io, "stdout: cannot write");
  if (!common.json.empty() && !common.json_to_stdout()) {
    const auto hold = hold_interrupts();
    write_text(common.json, dump);
  }
}

namespace {

std::string time_of(double seconds) {
  const auto minutes = static_cast<int64_t>(seconds / 60);
  if (minutes < 2) return fmt::format("{:.0f} s", seconds);
  return minutes < 120 ? fmt::format("{} min", minutes) : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace

Progress::Progress(std::string what, std::string unit, double units_a_step)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      units_(units_a_step),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (terminal_ && shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

void Progress::show(size_t done, size_t total) {
  const auto now = std::chrono::steady_clock::now();
  // A terminal is redrawn five times a second; a log gets a line every ten seconds.
  const double pause = terminal_ ? 0.2 : 10;
  if (std::chrono::duration<double>(now - last_).count() < pause && !(terminal_ && done == total)) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double here = static_cast<double>(std::max<size_t>(done - begin_, 1));
  const double whole = static_cast<double>(std::max<size_t>(total, 1));
  const double left = seconds * static_cast<double>(total - done) / here;
  const double rate = here * units_ / std::max(seconds, 1e-9);
  const std::string count = unit_.empty() ? fmt::format("{:.1f} %", 100 * static_cast<double>(done) / whole)
                                          : fmt::format("{}/{}", done, total);
  const std::string state = fmt::format("{}: {}, {}{}{} left", what_, count, note_,
                                        unit_.empty() ? "" : fmt::format("{:.0f} {}/s, ", rate, unit_), time_of(left));
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", state.c_str());
    return;
  }
  const size_t width = 24, filled = total ? width * done / total : width;
  std::fprintf(stderr, "\r\x1b[K[%s%s] %s", std::string(filled, '#').c_str(), std::string(width - filled, '.').c_str(),
               state.c_str());
  std::fflush(stderr);
}

}  // namespace unchain::cli
