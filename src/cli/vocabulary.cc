#include "text/vocabulary.h"

#include "base/check.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "text/corpus.h"
#include "tokenizer/tokenizer.h"

namespace unchain::cli {
namespace {

struct Options {
  std::vector<std::filesystem::path> files;
  int32_t size = 4096;
  std::string out;
};

void run(const Common& common, const Options& options) {
  prepare(common);
  text::check_vocabulary_folder(options.out);
  remove_if_interrupted(options.out);
  const std::vector<std::string> documents = text::read_documents(options.files);
  text::write_vocabulary(options.out, text::train_vocabulary(documents, options.size));
  const auto tokenizer = tokenizer::from_folder(options.out);
  size_t tokens = 0;
  for (const std::string& document : documents) tokens += tokenizer->encode(document).size();
  const size_t bytes = text::total_bytes(documents);
  const double ratio = static_cast<double>(bytes) / static_cast<double>(tokens);
  print_result(common,
               {{"folder", options.out},
                {"pieces", tokenizer->size()},
                {"documents", documents.size()},
                {"bytes", bytes},
                {"tokens", tokens},
                {"bytes_per_token", ratio}},
               fmt::format("{}: {} pieces; the text of {} bytes becomes {} tokens, {:.3f} bytes each\n", options.out,
                           tokenizer->size(), bytes, tokens, ratio));
}

}  // namespace

void add_vocabulary(CLI::App& app) {
  auto* command = app.add_subcommand("vocabulary", "train a tokenizer on text, for models to be trained");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "text files; each line of a .jsonl file is an object with a \"text\"")
      ->required()
      ->type_name("FILE...");
  command->add_option("--size", options->size, "pieces, of which 260 are fixed: bytes, newline, unknown, BOS, EOS")
      ->default_val(4096)
      ->group("Text");
  command
      ->add_option("-o,--out", options->out,
                   "folder for tokenizer.model and tokenizer_config.json, which does not exist yet")
      ->required()
      ->type_name("DIR")
      ->group("Output");
  add_output(*command, *common);
  command->add_option("--threads", common->threads, "threads to use; 0: OMP_NUM_THREADS, or one a processor")
      ->default_val(0)
      ->group("Compute")
      ->check(CLI::Range(0, 4096));
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
