#include "train/run.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <deque>

#include "base/check.h"
#include "base/file.h"
#include "base/spikes.h"
#include "formats/json.h"
#include "formats/text.h"
#include "model/transformer.h"
#include "train/checkpoint.h"
#include "train/metrics_file.h"
#include "train/optimizer.h"
#include "train/sample.h"
#include "train/schedule.h"
#include "train/step.h"

namespace unchain::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kUpdatesEvery = 10;  // steps between measurements of update ratios, which read all weights twice more

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A number for JSON, which has no NaN.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

// Nothing is there but what a run leaves behind that ended before it began.
bool is_unused(const fs::path& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return true;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name != "tokens" && !name.starts_with("run.json.")) return false;
  }
  return true;
}

// Whether there is a run in the folder to go on with. Errors: usage, io.
bool check_folder(const RunOptions& options) {
  std::error_code error;
  if (fs::exists(options.out, error) && !fs::is_directory(options.out, error))
    fail(ErrorCode::io, "{}: is no folder; give another name", options.out.string());
  const bool has_run = fs::exists(options.out / "run.json");
  if (has_run && !options.resume) {
    fail(ErrorCode::usage, "{}: holds a run already; go on with it by --resume, or give another name",
         options.out.string());
  }
  if (!has_run && !is_unused(options.out))
    fail(ErrorCode::usage, "{}: is no run folder and not empty; give another name", options.out.string());
  return has_run;
}

// Of a key as first_difference() names it, for messages.
std::string value_of(const ordered_json& config, const std::string& key) {
  const auto place = place_of(key);
  return config.contains(place) ? config.at(place).dump() : "absent";
}

void check_same_config(const fs::path& out, const ordered_json& config) {
  const fs::path path = out / "run.json";
  const ordered_json root = formats::parse_json(read_text(path, size_t{16} << 20), path.string());
  if (!root.contains("config")) fail(ErrorCode::format, "{}: has no config; the file is damaged", path.string());
  const std::string key = first_difference(root["config"], config, Compared::with_effect);
  if (key.empty()) return;
  fail(ErrorCode::usage, "{}: {} is {} now, but the run was begun with {}; resume it with that, or begin another run",
       out.string(), key, value_of(config, key), value_of(root["config"], key));
}

class Run {
 public:
  Run(RunConfig config, const RunOptions& options, dist::Comm& comm)
      : config_(std::move(config)), options_(options), comm_(comm) {}

  RunResult go(const MakeLearner& make) {
    begin(make);
    while (state_.step < config_.train.steps() && !result_.stopped) one_step();
    return finish();
  }

 private:
  bool first() const { return comm_.rank() == 0; }
  void note(const std::string& text) const {
    if (first() && options_.on_note) options_.on_note(text);
  }
  fs::path vocabulary() const { return config_.data.vocabulary; }

  void begin(const MakeLearner& make);
  void check_same_everywhere(const ordered_json& config);
  void check_folder_is_shared(bool had_run);
  void resume();
  void one_step();
  void add_spikes(ordered_json& line, double loss, double gradient_norm);
  void evaluate(ordered_json& line);
  void save();
  void write_sample(const fs::path& checkpoint);
  void check_weights();
  RunResult finish();

  RunConfig config_;
  const RunOptions& options_;
  dist::Comm& comm_;
  RunData data_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<MetricsFile> metrics_, samples_;
  RunState state_;
  SpikeDetector loss_spikes_, gradient_spikes_;
  std::optional<ValidLoss> valid_;  // of the weights as they are
  int64_t saved_ = -1;              // the step of the newest checkpoint
  double seconds_ = 0;              // of steps alone
  int64_t steps_here_ = 0;
  RunResult result_;
};

void Run::begin(const MakeLearner& make) {
  const bool has_run = check_folder(options_);
  comm_.barrier();  // all have looked before the first one writes
  if (config_.train.dtype.empty()) config_.train.dtype = info(model::default_dtype()).name;
  const auto tokenizer = open_vocabulary(config_);
  const model::Config model = model_config(config_, tokenizer->size());
  const ordered_json resolved = to_json(config_);
  check_same_everywhere(resolved);
  if (has_run) check_same_config(options_.out, resolved);
  data_ = open_data(config_, tokenizer, options_.cache.empty() ? options_.out / "tokens" : options_.cache, comm_);
  learner_ =
      make(model, parse_dtype(config_.train.dtype), static_cast<uint64_t>(config_.train.seed), config_.train.recompute);
  optimizer_ = std::make_unique<Optimizer>(learner_->parameters(), config_.train);
  state_.seed = static_cast<uint64_t>(config_.train.seed);
  state_.text_hash = data_.text_hash;
  state_.vocabulary_hash = data_.vocabulary_hash;
  result_.steps = config_.train.steps();
  if (first()) {
    fs::create_directories(options_.out);
    if (!has_run) {
      ordered_json description = {{"config", resolved}, {"ranks", comm_.ranks()}};
      description.update(options_.machine);
      write_text(options_.out / "run.json", description.dump(1) + "\n");
    }
    metrics_ = std::make_unique<MetricsFile>(options_.out / "metrics.jsonl");
    if (options_.samples) samples_ = std::make_unique<MetricsFile>(options_.out / "samples.jsonl");
    remove_leftovers(options_.out);
  }
  check_folder_is_shared(has_run);
  if (has_run) resume();
  if (metrics_) metrics_->truncate_to_step(state_.step);
  if (samples_) samples_->truncate_to_step(state_.step);
  if (first() && options_.on_start) options_.on_start(model);
}

// Ranks with other keys would wait for each other for ever, or train on without a word.
void Run::check_same_everywhere(const ordered_json& config) {
  if (comm_.ranks() == 1) return;
  std::string text = config.dump();
  uint64_t size = text.size();
  comm_.broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(size);
  comm_.broadcast(std::as_writable_bytes(std::span(text)));
  const ordered_json theirs = ordered_json::parse(text);
  const std::string key = first_difference(theirs, config, Compared::all);
  if (key.empty()) return;
  fail(ErrorCode::usage, "{} is {} here and {} on the first rank; give all ranks the same configuration", key,
       value_of(config, key), value_of(theirs, key));
}

// Ranks resume from the first one's checkpoints, so that all must see its folder. Waits for all.
void Run::check_folder_is_shared(bool had_run) {
  if (comm_.ranks() == 1) return;
  bool had_first = had_run;
  comm_.broadcast(std::as_writable_bytes(std::span(&had_first, 1)));  // after the first has written
  if (had_run == had_first && fs::exists(options_.out / "run.json")) return;
  fail(ErrorCode::io, "{}: is not the folder that the first rank sees; give one on a file system that all share",
       options_.out.string());
}

void Run::resume() {
  const auto folder = newest_checkpoint(options_.out);
  if (!folder) {
    note("no checkpoint yet: the run begins again");
    return;
  }
  const RunState loaded = load_checkpoint(*folder, *learner_, *optimizer_);
  if (loaded.text_hash != state_.text_hash || loaded.vocabulary_hash != state_.vocabulary_hash) {
    fail(ErrorCode::usage, "{}: the {} is not what the run was begun with; give the same files, or begin another run",
         loaded.text_hash != state_.text_hash ? "data.train" : "data.vocabulary",
         loaded.text_hash != state_.text_hash ? "text" : "vocabulary");
  }
  if (loaded.seed != state_.seed || loaded.step > config_.train.steps()) {
    fail(ErrorCode::format, "{}: step {} and seed {} are not of this run; remove the folder", folder->string(),
         loaded.step, loaded.seed);
  }
  state_ = loaded;
  saved_ = state_.step;
  loss_spikes_.set_window(state_.losses);
  gradient_spikes_.set_window(state_.gradient_norms);
  note(fmt::format("resumed from {}", folder->string()));
}

void Run::one_step() {
  const TrainKeys& keys = config_.train;
  const auto start = Clock::now();
  StepLoss loss;
  OptimizerReport report;
  const double rate = learning_rate(keys, state_.step);
  try {
    loss = accumulate(*learner_, *data_.batches, state_.step, keys.rows(), keys.micro_batch, config_.data.needles.share,
                      comm_);
    if (!std::isfinite(loss.loss_nats)) fail(ErrorCode::numeric, "the loss is not finite");
    report = optimizer_->step(learner_->parameters(), state_.step + 1, rate, state_.step % kUpdatesEvery == 0);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::numeric) throw;
    fail(ErrorCode::numeric, "step {}: {}; {}", state_.step + 1, error.what(),
         saved_ < 0 ? "there is no checkpoint yet" : fmt::format("the newest checkpoint is of step {}", saved_));
  }
  const double seconds = seconds_since(start);
  seconds_ += seconds;
  ++state_.step;
  ++steps_here_;
  state_.text_loss_nats = std::isfinite(loss.text_loss_nats) ? loss.text_loss_nats : loss.loss_nats;
  valid_.reset();

  ordered_json line = {{"step", state_.step},
                       {"tokens", state_.step * keys.batch_tokens},
                       {"loss_nats", loss.loss_nats},
                       {"text_loss_nats", number(loss.text_loss_nats)},
                       {"answer_loss_nats", number(loss.answer_loss_nats)},
                       {"learning_rate", rate},
                       {"gradient_norm", report.gradient_norm},
                       {"gradient_norms", report.group_norms}};
  if (!report.update_ratios.empty()) line["update_ratios"] = report.update_ratios;
  line["lambda"] = ordered_json::array();
  for (const double lambda : learner_->lambdas()) line["lambda"].push_back(number(lambda));
  add_spikes(line, loss.loss_nats, report.gradient_norm);
  line["tokens_per_s"] = static_cast<double>(keys.batch_tokens) / seconds;
  line["memory_bytes"] = peak_memory_bytes();

  double stop = options_.stop && options_.stop() ? 1 : 0;
  comm_.sum(std::span(&stop, 1));
  const bool last = state_.step == keys.steps();
  result_.stopped = stop > 0 && !last;
  if (data_.validation && (last || (keys.evaluate_every > 0 && state_.step % keys.evaluate_every == 0))) evaluate(line);
  // Before the checkpoint: a line too many is cut off at a resume, one too few could not be had again.
  if (first()) {
    metrics_->append(line);
    if (options_.on_step) options_.on_step(line);
  }
  if (last || result_.stopped || (keys.save_every > 0 && state_.step % keys.save_every == 0)) save();
}

void Run::add_spikes(ordered_json& line, double loss, double gradient_norm) {
  const auto look = [&](SpikeDetector& detector, std::deque<double>& window, const char* name, double value) {
    if (const auto z = detector.add(value)) {
      line["spikes"][name] = *z;
      ++result_.spikes;
      note(fmt::format("step {}: {} leapt to {:.4g}, {:.1f} standard deviations above the last {} steps", state_.step,
                       name, value, *z, detector.window().size() - 1));
    }
    window = detector.window();
  };
  look(loss_spikes_, state_.losses, "loss_nats", loss);
  look(gradient_spikes_, state_.gradient_norms, "gradient_norm", gradient_norm);
}

void Run::evaluate(ordered_json& line) {
  valid_ = data_.validation->measure(*learner_, comm_);
  line["valid_loss_nats"] = valid_->loss_nats;
  line["valid_perplexity"] = valid_->perplexity;
  line["valid_bits_per_byte"] = valid_->bits_per_byte;
}

void Run::save() {
  check_weights();
  if (first()) {
    const fs::path folder =
        save_checkpoint(options_.out, *learner_, *optimizer_, state_, vocabulary(), config_.train.keep);
    if (options_.samples && valid_) write_sample(folder);
  }
  saved_ = state_.step;
  comm_.barrier();  // nobody is a step ahead of the files
}

void Run::write_sample(const fs::path& checkpoint) {
  constexpr int64_t kPrompt = 16, kTokens = 32;
  const std::vector<int32_t> prompt = data_.validation->beginning(kPrompt);
  const auto ids = continue_text(checkpoint, parse_dtype(config_.train.dtype), prompt, kTokens);
  const std::string text = data_.tokenizer->decode(ids);
  samples_->append({{"step", state_.step}, {"prompt", data_.tokenizer->decode(prompt)}, {"text", text}});
  note(fmt::format("step {} writes: {}", state_.step, formats::printable(text)));
}

// All ranks do the same arithmetic; what broke that would go unseen otherwise.
void Run::check_weights() {
  if (comm_.ranks() == 1) return;
  const uint64_t own = hash_weights(learner_->parameters());
  uint64_t hash = own;
  comm_.broadcast(std::as_writable_bytes(std::span(&hash, 1)));
  double differ = hash != own ? 1 : 0;
  comm_.sum(std::span(&differ, 1));
  if (differ > 0) {
    fail(ErrorCode::numeric,
         "step {}: {} of {} ranks hold other weights than the first; are all machines alike, with one thread count?",
         state_.step, differ, comm_.ranks());
  }
}

RunResult Run::finish() {
  result_.step = state_.step;
  result_.tokens = state_.step * config_.train.batch_tokens;
  if (seconds_ > 0) result_.tokens_per_s = static_cast<double>(steps_here_ * config_.train.batch_tokens) / seconds_;
  if (!valid_ && data_.validation && !result_.stopped) valid_ = data_.validation->measure(*learner_, comm_);
  result_.loss_nats = valid_ ? valid_->loss_nats : state_.text_loss_nats;
  result_.perplexity = std::exp(result_.loss_nats);
  result_.bits_per_byte = valid_ ? valid_->bits_per_byte : std::nan("");
  if (first() && !result_.stopped) save_model(options_.out / "model", *learner_, vocabulary());
  comm_.barrier();
  return result_;
}

}  // namespace

model::Config model_config(RunConfig& config, int64_t pieces) {
  nlohmann::json& keys = config.model;
  const auto add = [&](const char* key, const nlohmann::json& value) {
    if (!keys.contains(key) || keys[key].is_null()) keys[key] = value;
  };
  add("model_type", keys.contains("attention") ? "unchain" : "llama");
  add("vocab_size", pieces);
  add("max_position_embeddings", config.train.context);
  model::Config model = model::config_from_json(keys.dump(), "model");
  if (model.vocabulary < pieces) {
    fail(ErrorCode::usage, "model.vocab_size: is {}, but the vocabulary of {} has {} pieces; leave the key out",
         model.vocabulary, config.data.vocabulary, pieces);
  }
  if (model.context < config.train.context) {
    fail(ErrorCode::usage, "model.max_position_embeddings: is {}, below train.context {}; leave the key out",
         model.context, config.train.context);
  }
  return model;
}

RunResult run(RunConfig config, const RunOptions& options, dist::Comm& comm, const MakeLearner& make) {
  return Run(std::move(config), options, comm).go(make);
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace unchain::train
