#include "train/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/check.h"
#include "base/thread.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/ranks.h"

namespace unchain::cli {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> settings;
  std::string out;
  bool resume = false, recompute = false;
};

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

// The parameters beside those of softmax attention with the same sizes; for a second map with queries and keys of its
// own under both accountings: in place of half of the heads, or beside all of them.
void describe_model(const model::Config& config) {
  const auto count = [&](const attention::AttentionConfig& attention) {
    model::Config changed = config;
    changed.attention = attention;
    return model::parameter_count(changed);
  };
  const int64_t softmax = count(attention::preset("softmax"));
  const auto more = [&](int64_t parameters) {
    return 100 * (static_cast<double>(parameters) / static_cast<double>(softmax) - 1);
  };
  attention::AttentionConfig other = config.attention;
  const bool own_keys = other.noise == attention::NoiseMap::own_keys;
  const bool halved = other.accounting == attention::Accounting::halved;
  const char* names[] = {"heads halved", "a second group added"};
  std::string text = config.attention.preset;
  if (other.has_second_map()) text += fmt::format(" with {}", names[halved ? 0 : 1]);
  text += fmt::format(": {} parameters", count(other));
  if (!other.is_softmax()) text += fmt::format(", {:+.2f} % against softmax with {}", more(count(other)), softmax);
  const bool can_halve = config.heads % 2 == 0 && config.kv_heads % 2 == 0;
  if (own_keys && !other.low_rank_queries && (halved || can_halve)) {
    other.accounting = halved ? attention::Accounting::added : attention::Accounting::halved;
    text += fmt::format("; with {} {}, {:+.2f} %", names[halved ? 1 : 0], count(other), more(count(other)));
  }
  say(text);
}

nlohmann::json finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

void print(const Common& common, const Options& options, const train::RunConfig& config, const train::RunResult& r,
           int64_t ranks) {
  nlohmann::json result = describe_run(common, common.type());
  result.update({{"folder", options.out},
                 {"config", train::to_json(config)},
                 {"ranks", ranks},
                 {"step", r.step},
                 {"steps", r.steps},
                 {"finished", !r.stopped},
                 {"tokens", r.tokens},
                 {"loss_nats", finite(r.loss_nats)},
                 {"perplexity", finite(r.perplexity)},
                 {"bits_per_byte", finite(r.bits_per_byte)},
                 {"spikes", r.spikes},
                 {"tokens_per_s", r.tokens_per_s},
                 {"memory_bytes", train::peak_memory_bytes()}});
  const bool valid = std::isfinite(r.bits_per_byte);
  print_result(
      common, result,
      fmt::format("steps          {} of {}, {} tokens\nloss           {:.6f} nats a token ({})\nperplexity     "
                  "{:.4f}\n{}speed          {:.0f} tokens/s, {}\n{}          {}\n",
                  r.step, r.steps, r.tokens, r.loss_nats, valid ? "validation text" : "last step", r.perplexity,
                  valid ? fmt::format("bits a byte    {:.4f}\n", r.bits_per_byte) : "", r.tokens_per_s,
                  info(common.type()).name, r.stopped ? "saved" : "model",
                  r.stopped ? options.out + "/checkpoints" : options.out + "/model"));
}

// True: stopped by a signal, all saved.
bool train_as(dist::Comm& comm, Common common, const Options& options) {
  const bool first = comm.rank() == 0;
  prepare(common);
  train::RunConfig config = train::read_config(options.config, options.settings);
  if (!common.dtype.empty()) config.train.dtype = common.dtype;
  if (config.train.dtype.empty()) config.train.dtype = info(model::default_dtype()).name;
  common.dtype = config.train.dtype;
  config.train.recompute |= options.recompute;

  std::unique_ptr<Progress> progress;
  int64_t begin = -1;
  train::RunOptions run;
  run.out = options.out;
  run.resume = options.resume;
  run.machine = describe_machine();
  run.samples = true;
  run.stop = interrupted;
  run.on_note = say;
  run.on_start = describe_model;
  run.on_step = [&](const nlohmann::ordered_json& metrics) {
    const int64_t step = metrics["step"];
    if (!progress) {
      progress = std::make_unique<Progress>("step", "tokens", static_cast<double>(config.train.batch_tokens));
      begin = step;
      progress->begin_at(static_cast<size_t>(begin));
    }
    const auto valid = metrics.find("valid_loss_nats");
    if (valid != metrics.end()) {
      say(fmt::format("step {}: {:.4f} nats a token on the validation text, perplexity {:.3f}", step,
                      valid->get<double>(), metrics["valid_perplexity"].get<double>()));
    }
    progress->note(fmt::format("loss {:.4f}, ", metrics["loss_nats"].get<double>()));
    progress->show(static_cast<size_t>(step), static_cast<size_t>(config.train.steps()));
  };
  remove_if_interrupted(std::filesystem::path(options.out) / "model");
  interrupt_gently();
  const train::RunResult result = train::run(config, run, comm);
  progress.reset();
  if (first) print(common, options, config, result, comm.ranks());
  if (result.stopped && first) {
    say(fmt::format("stopped after step {} of {}, all saved; the same command with --resume goes on", result.step,
                    result.steps));
  }
  return result.stopped;
}

void run(const Common& common, const Options& options) {
  bool stopped = false;
  run_as_ranks(common, [&](dist::Comm& comm, const Common& own) { stopped = train_as(comm, own, options); });
  if (stopped && interrupted()) end_interrupted();
}

}  // namespace

void add_train(CLI::App& app) {
  auto* command = app.add_subcommand(
      "train", "train a model from scratch; 'mpirun -n K unchain train …' spreads each step over K processes");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  command->add_option("config", options->config, "configuration: JSON with comments, keys as in docs/training.md")
      ->required()
      ->type_name("CONFIG.json");
  command
      ->add_option("--set", options->settings,
                   "one value in place of the file's, as in --set train.learning_rate=1e-3; may be given often")
      ->type_name("KEY=VALUE")
      ->group("Run");
  command->add_option("-o,--out", options->out, "run folder: model/, checkpoints/, metrics.jsonl, run.json")
      ->required()
      ->type_name("DIR")
      ->group("Output");
  command
      ->add_flag("--resume", options->resume,
                 "go on from the newest checkpoint in the folder; without one, begin there")
      ->group("Run");
  command
      ->add_flag("--recompute", options->recompute,
                 "keep less of the forward pass and compute it again: less memory, a third more time")
      ->group("Run");
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
