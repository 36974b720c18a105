#include "eval/generate.h"

#include <cstdio>

#include "base/check.h"
#include "cli/text_source.h"

namespace unchain::cli {
namespace {

struct Options {
  std::string prompt;
  int64_t count = 64;
  eval::SamplingOptions sampling;
  bool ignore_stops = false;
};

// Bytes at the end that begin a UTF-8 character which is not whole yet: they wait for the next token.
size_t unfinished_bytes(const std::string& text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xc0) return (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) > back ? back : 0;
    if (byte < 0x80) return 0;
  }
  return 0;
}

void run(const Common& common, const Options& options) {
  prepare(common);
  eval::check(options.sampling);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto tokenizer = open_tokenizer(file, common, "generate needs one");
  const std::vector<int32_t> prompt = encode_text(*tokenizer, options.prompt, "--prompt", common);
  const int64_t most = static_cast<int64_t>(prompt.size()) + options.count;
  warn_beyond_context(file, most, fmt::format("prompt of {} tokens and -n {}", prompt.size(), options.count));
  const auto model = model::load(file, common.type());
  model::Context context(model, most);
  std::vector<int32_t> ids;
  // Decoded with the prompt before it, since some tokenizers drop a blank at the very beginning.
  std::vector<int32_t> read = prompt;
  const size_t before = tokenizer->decode(prompt).size();
  size_t printed = 0;
  std::string text;
  std::chrono::steady_clock::time_point first;
  const auto flush = [&](size_t keep_back) {
    if (!common.json_to_stdout() && text.size() - keep_back > printed) {
      std::fwrite(text.data() + printed, 1, text.size() - keep_back - printed, stdout);
      if (std::fflush(stdout) != 0) fail(ErrorCode::io, "stdout: cannot write");
      printed = text.size() - keep_back;
    }
  };
  if (!common.json_to_stdout()) std::fputs(options.prompt.c_str(), stdout);
  eval::generate(context, prompt, options.count, options.sampling, common.seed,
                 options.ignore_stops ? std::vector<int32_t>() : tokenizer->stops, [&](int32_t id) {
                   if (ids.empty()) first = std::chrono::steady_clock::now();
                   ids.push_back(id);
                   read.push_back(id);
                   text = tokenizer->decode(read).substr(before);
                   flush(unfinished_bytes(text));
                   return true;
                 });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - first).count();
  flush(0);
  if (!common.json_to_stdout()) std::fputs("\n", stdout);
  std::fflush(stdout);  // the line below goes to stderr, and belongs behind the text
  const double rate = ids.size() > 1 ? static_cast<double>(ids.size() - 1) / seconds : 0;
  std::fprintf(stderr, "%zu tokens, %.1f tokens/s, %s\n", ids.size(), rate,
               std::string(info(model->dtype).name).c_str());
  nlohmann::json result = describe_run(common, model->dtype);
  result.update({{"text", text}, {"ids", ids}, {"prompt_ids", prompt}, {"tokens_per_s", rate}});
  print_result(common, result, "");
}

}  // namespace

void add_generate(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "text that continues a prompt, streamed");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  add_model(*command, *common);
  command->add_option("--prompt", options->prompt, "the text to continue")
      ->required()
      ->type_name("TEXT")
      ->group("Text");
  command->add_option("-n,--tokens", options->count, "most tokens to add")
      ->default_val(64)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Text");
  command->add_flag("--ignore-stops", options->ignore_stops, "go on after an end-of-text token")->group("Text");
  add_text_reading(*command, *common);
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "0: always the likeliest token; 1: as the model believes")
      ->default_val(0)
      ->group("Sampling");
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "sample among the likeliest tokens that together have this probability")
      ->default_val(1)
      ->group("Sampling");
  add_seed(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
