// curve_data CONFIG.json OUT [KEY=VALUE...]: what another trainer needs to train the model of a configuration as
// `unchain train` does: OUT/model, the weights before the first step; OUT/rows.i32 [steps, rows, context + 1], the
// tokens of every step; OUT/valid.i32 [rows, context + 1], those of the validation loss; OUT/config.json, the
// configuration with every key and `learning_rates`, one a step. Without needles, on one process.
#include <fmt/format.h>

#include <cstdio>

#include "base/check.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/run.h"
#include "train/schedule.h"

namespace {

using namespace unchain;

// Inputs and the last target of each row.
void write_rows(AtomicFile& file, const text::Batch& batch) {
  for (int64_t row = 0; row < batch.rows; ++row) {
    file.write(batch.inputs.data() + row * batch.context, static_cast<size_t>(batch.context) * sizeof(int32_t));
    file.write(batch.targets.data() + (row + 1) * batch.context - 1, sizeof(int32_t));
  }
}

void run(const std::filesystem::path& path, const std::filesystem::path& out,
         const std::vector<std::string>& settings) {
  train::RunConfig config = train::read_config(path, settings);
  if (config.data.needles.share > 0 || config.data.separate_documents || config.data.valid.empty())
    fail(ErrorCode::usage, "{}: expected texts without needles or separate documents, and data.valid", path.string());
  const auto comm = dist::alone();
  const auto tokenizer = train::open_vocabulary(config);
  const model::Config model = train::model_config(config, tokenizer->size());
  train::RunData data = train::open_data(config, tokenizer, out / "tokens", *comm);
  const auto learner = train::make_learner(model, DType::f32, static_cast<uint64_t>(config.train.seed), false);
  train::save_model(out / "model", *learner, config.data.vocabulary);
  nlohmann::ordered_json description = train::to_json(config);
  AtomicFile rows(out / "rows.i32");
  for (int64_t step = 0; step < config.train.steps(); ++step) {
    write_rows(rows, data.batches->read(step, {0, config.train.rows()}));
    description["learning_rates"].push_back(train::learning_rate(config.train, step));
  }
  rows.commit();
  const text::Batches valid(
      text::cached_tokens({config.data.valid.begin(), config.data.valid.end()}, *tokenizer, out / "tokens"),
      {.context = config.train.context});
  AtomicFile held_out(out / "valid.i32");
  write_rows(held_out, valid.in_order({0, valid.samples()}));
  held_out.commit();
  write_text(out / "config.json", description.dump(1) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: curve_data CONFIG.json OUT [KEY=VALUE...]\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "curve_data: %s\n", error.what());
    return 1;
  }
  return 0;
}
