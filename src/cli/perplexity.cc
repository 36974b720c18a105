#include "eval/perplexity.h"

#include <cmath>

#include "base/check.h"
#include "cli/text_source.h"

namespace unchain::cli {
namespace {

struct Options {
  std::string mode = "disjoint";
  eval::WindowOptions windows;
};

void run(const Common& common, const std::string& path, Options options) {
  prepare(common);
  options.windows.mode = eval::parse_window_mode(options.mode);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto tokenizer = open_tokenizer(file, common, "perplexity needs one");
  const int32_t bos = tokenizer->add_bos ? tokenizer->bos : -1;
  const auto text = encode_text(*tokenizer, read_text_file(path), path, common, false);
  const auto windows = eval::cut_windows(text, bos, options.windows);
  warn_beyond_context(file, options.windows.window, fmt::format("--window {}", options.windows.window));
  const auto model = model::load(file, common.type());
  Progress progress("perplexity", "tokens", static_cast<double>(options.windows.window));
  const eval::PerplexityResult r =
      eval::perplexity(model, tokenizer.get(), windows, [&](size_t done, size_t total) { progress.show(done, total); });
  const double rate = static_cast<double>(r.tokens_read) / r.seconds;
  nlohmann::json result = describe_run(common, model->dtype);
  result.update({{"perplexity", r.perplexity},
                 {"nll_nats", r.nll_nats},
                 {"bits_per_byte", std::isfinite(r.bits_per_byte) ? nlohmann::json(r.bits_per_byte) : nlohmann::json()},
                 {"tokens_scored", r.tokens_scored},
                 {"mode", options.mode},
                 {"window", options.windows.window},
                 {"windows", windows.size()},
                 {"bos", bos >= 0},
                 {"tokens_per_s", rate},
                 {"window_nll_nats", r.window_nll_nats}});
  print_result(
      common, result,
      fmt::format("perplexity     {:.4f}\nnll            {:.6f} nats a token\nbits a byte    {:.4f}\ntokens scored  {} "
                  "in {} windows of {} ({}, {})\nspeed          {:.0f} tokens/s, {}\n",
                  r.perplexity, r.nll_nats, r.bits_per_byte, r.tokens_scored, windows.size(), options.windows.window,
                  options.mode, bos >= 0 ? "each after BOS" : "no BOS", rate, info(model->dtype).name));
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto* command = app.add_subcommand("perplexity", "how well a model predicts a text");
  auto common = std::make_shared<Common>();
  auto path = std::make_shared<std::string>();
  auto options = std::make_shared<Options>();
  add_model(*command, *common);
  command->add_option("file", *path, "text file")->required()->type_name("FILE");
  command
      ->add_option("--mode", options->mode,
                   "disjoint: all positions of windows side by side; sliding: each token with at least window − stride "
                   "tokens before it; half: the second half of each window, as llama.cpp")
      ->default_val("disjoint")
      ->check(CLI::IsMember({"disjoint", "sliding", "half"}))
      ->group("Windows");
  command->add_option("--window", options->windows.window, "tokens of a window")->default_val(512)->group("Windows");
  CLI::Option* stride = command
                            ->add_option("--stride", options->windows.stride,
                                         "sliding: tokens from one window to the next; 0: half a window")
                            ->default_val(0)
                            ->group("Windows");
  command->add_option("--max-windows", options->windows.max_windows, "read only so many windows; 0: all")
      ->default_val(0)
      ->group("Windows");
  add_text_reading(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, path, options, stride] {
    if (stride->count() > 0 && options->mode != "sliding")
      fail(ErrorCode::usage, "--stride: is of --mode sliding only, not of --mode {}", options->mode);
    run(*common, *path, *options);
  });
}

}  // namespace unchain::cli
