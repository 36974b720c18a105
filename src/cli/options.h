// What all commands share: common options, opening a model, results as text or JSON, progress.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/model_file.h"
#include "model/transformer.h"

namespace unchain::cli {

struct Common {
  std::string model;         // path
  std::string json;          // file for the result as JSON; "-": stdout in place of the text
  int threads = 0;           // 0: all
  std::string dtype;         // empty: the fastest in hardware
  std::string pretokenizer;  // empty: as the file says
  bool special = false;      // control tokens' names in the text become those tokens
  uint64_t seed = 0;

  DType type() const { return dtype.empty() ? model::default_dtype() : parse_dtype(dtype); }
  tokenizer::Control control() const { return special ? tokenizer::Control::parse : tokenizer::Control::literal; }
  bool json_to_stdout() const { return json == "-"; }
};

// Options by purpose; a command takes the groups that it needs.
void add_model(CLI::App& command, Common& common);
void add_output(CLI::App& command, Common& common);
void add_compute(CLI::App& command, Common& common);
void add_text_reading(CLI::App& command, Common& common);
void add_pretokenizer(CLI::App& command, Common& common, const std::string& group);
void add_seed(CLI::App& command, Common& common);

// Before any work: takes the threads, and makes sure that --json can be written. Error: io.
void prepare(const Common& common);

// The model's tokenizer; its warnings go to stderr. `otherwise` ends the error's message where there is none that can
// be read: what the user of this command can do about it.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const model::ModelFile& file, const Common& common,
                                                     const std::string& otherwise);

// Says on stderr that `what` (for example "--window 4096") goes beyond the positions that the model was trained for.
void warn_beyond_context(const model::ModelFile& file, int64_t tokens, const std::string& what);

// "1,2,3" (blanks allowed) as ids. Error: usage.
std::vector<int32_t> parse_ids(const std::string& list);
// The ids of a file, all below `vocabulary`: numbers with blanks, commas or line ends between them. Errors: io, format
// with the line.
std::vector<int32_t> read_ids(const std::string& path, int64_t vocabulary);
// A text file that is not empty. Errors: io, format.
std::string read_text_file(const std::string& path);

// What every result says of the run: {"dtype", "threads", "isa", "version"}.
nlohmann::json describe_run(const Common& common, DType dtype);

// What run.json says of the machine: {"version", "processor", "processors", "threads", "isa", "products"}.
nlohmann::ordered_json describe_machine();

// Prints `text` on stdout, or the JSON there if --json is "-"; writes the JSON to its file if --json names one.
void print_result(const Common& common, const nlohmann::json& result, const std::string& text);

// Progress on stderr: a bar with rate and time left on a terminal, else a line now and then. Erased or ended when done.
class Progress {
 public:
  // Without a unit the count is shown in per cent and no rate.
  Progress(std::string what, std::string unit, double units_a_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(size_t done, size_t total);
  // Makes room for another line on stderr; the next show() draws the bar again.
  void clear();
  // What `show` says besides, for example the loss.
  void note(std::string text) { note_ = std::move(text); }
  // The count at which the work of this call begins: what was done before took no time of it.
  void begin_at(size_t done) { begin_ = done; }

 private:
  std::string what_, unit_;
  double units_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_, last_;
  bool shown_ = false;
  std::string note_;
  size_t begin_ = 0;
};

// Each command adds itself to the program; the options live as long as the program does.
void add_inspect(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_logits(CLI::App& app);
void add_generate(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_analyze(CLI::App& app);
void add_capture(CLI::App& app);
void add_export(CLI::App& app);
void add_vocabulary(CLI::App& app);
void add_train(CLI::App& app);
void add_needle(CLI::App& app);
void add_choice(CLI::App& app);
void add_compare(CLI::App& app);
void add_study(CLI::App& app);

}  // namespace unchain::cli
