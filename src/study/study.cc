#include "study/study.h"

#include <map>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "dist/comm.h"
#include "formats/json.h"
#include "model/model_file.h"
#include "model/trainable.h"
#include "text/corpus.h"
#include "text/vocabulary.h"
#include "train/run.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kCurvePoints = 100;

uint64_t hash_file(const fs::path& path, uint64_t state) {
  const MappedFile file = MappedFile::open(path);
  const auto bytes = file.bytes();
  return hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, hash_number(bytes.size(), state));
}

ordered_json to_json(const eval::NeedleOptions& needle) {
  return {{"form", text::to_string(needle.form)},
          {"lengths", needle.lengths},
          {"depths", needle.depths},
          {"needles", needle.needles},
          {"queries", needle.queries},
          {"samples", needle.samples},
          {"seed", needle.seed}};
}

// What the result of a run follows from: its description and the bytes of its files, wherever these lie.
std::string key_of(const train::RunConfig& config, const eval::NeedleOptions& needle) {
  ordered_json described = train::to_json(config);
  for (const char* key : {"train", "valid", "vocabulary"}) described["data"].erase(key);
  for (const std::string_view key : train::kKeysWithoutEffect) described["train"].erase(std::string(key));
  uint64_t hash = hash_bytes(described.dump() + to_json(needle).dump());
  for (const auto* files : {&config.data.train, &config.data.valid})
    for (const std::string& file : *files) hash = hash_file(file, hash);
  return fmt::format("{:016x}", hash_file(fs::path(config.data.vocabulary) / "tokenizer.model", hash));
}

// A mean over every so many steps, about kCurvePoints in all.
ordered_json curve(const fs::path& metrics, int64_t steps) {
  const int64_t width = std::max<int64_t>(1, steps / kCurvePoints);
  ordered_json points = ordered_json::array();
  std::map<std::string, std::pair<double, int64_t>> sums;
  const std::string text = read_text(metrics);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const ordered_json line = formats::parse_json(text.substr(begin, end - begin), metrics.string());
    for (const char* key : {"text_loss_nats", "answer_loss_nats"}) {
      if (!line.contains(key) || !line[key].is_number()) continue;
      sums[key].first += line[key].get<double>();
      ++sums[key].second;
    }
    if (line["step"].get<int64_t>() % width != 0) continue;
    ordered_json point = {{"tokens", line["tokens"]}};
    for (const auto& [key, sum] : sums) point[key] = sum.first / static_cast<double>(sum.second);
    points.push_back(point);
    sums.clear();
  }
  return points;
}

class Study {
 public:
  Study(const std::vector<PlannedRun>& runs, const eval::NeedleOptions& needle, const StudyOptions& options)
      : runs_(runs), needle_(needle), options_(options), comm_(dist::alone()) {
    for (const PlannedRun& run : runs) {
      if (run.config.data.valid.empty())
        fail(ErrorCode::usage, "data.valid is missing: a study compares models on a text that none has seen");
      total_ += run.config.train.steps();
    }
  }

  std::vector<ordered_json> go() {
    std::vector<ordered_json> results;
    for (const PlannedRun& run : runs_) {
      const fs::path file = folder(run) / "result.json";
      const std::string key = key_of(run.config, needle_);
      ordered_json result = read_result(file, key);
      if (result.is_null()) {
        result = carry_out(run, key);
        if (result.is_null()) break;  // stopped
        write_text(file, result.dump(1) + "\n");
      }
      results.push_back(std::move(result));
      done_ += run.config.train.steps();
      show(run, 0);
    }
    return results;
  }

 private:
  fs::path folder(const PlannedRun& run) const { return options_.out / "runs" / run.name(); }
  void show(const PlannedRun& run, int64_t step) const {
    if (options_.progress) options_.progress(done_ + step, total_, run.name());
  }

  // Null if there is none, or one of another description.
  ordered_json read_result(const fs::path& file, const std::string& key) const {
    if (!fs::exists(file)) return nullptr;
    ordered_json result = formats::parse_json(read_text(file, size_t{16} << 20), file.string());
    if (result.value("key", "") == key) return result;
    fail(ErrorCode::usage,
         "{}: is of another description, text or vocabulary; give another folder, or remove the folder of this run",
         file.string());
  }

  ordered_json carry_out(const PlannedRun& run, const std::string& key) {
    train::RunOptions options;
    options.out = folder(run);
    options.resume = true;
    options.machine = options_.machine;
    options.cache = options_.out / "tokens";
    options.stop = options_.stop;
    options.on_note = options_.on_note;
    options.on_step = [&](const ordered_json& metrics) { show(run, metrics["step"]); };
    int64_t parameters = 0;
    options.on_start = [&](const model::Config& config) { parameters = model::parameter_count(config); };
    const train::RunResult trained = train::run(run.config, options, *comm_);
    if (trained.stopped) return nullptr;
    return {{"key", key},
            {"size", run.size},
            {"member", run.member},
            {"seed", run.seed},
            {"parameters", parameters},
            {"tokens", trained.tokens},
            {"tokens_per_s", trained.tokens_per_s},
            {"loss_nats", trained.loss_nats},
            {"perplexity", trained.perplexity},
            {"bits_per_byte", trained.bits_per_byte},
            {"needle", ask(run)},
            {"curve", curve(options.out / "metrics.jsonl", trained.steps)}};
  }

  ordered_json ask(const PlannedRun& run) const {
    const model::ModelFile file = model::ModelFile::open(folder(run) / "model");
    const auto tokenizer = train::open_vocabulary(run.config);
    const text::Haystack haystack;
    const auto tasks = eval::plan_needles(*tokenizer, haystack, needle_);
    const auto model = model::load(file, parse_dtype(run.config.train.dtype));
    const eval::NeedleResult result = eval::ask_needles(model, *tokenizer, needle_.form, tasks);
    const auto interval = eval::wilson_interval(result.accuracy);
    double attention = 0;
    int64_t answers = 0;
    for (const eval::NeedleCell& cell : result.cells)
      for (const eval::NeedleSample& sample : cell.samples)
        for (const eval::NeedleAnswer& answer : sample.answers) {
          attention += eval::mean_attention(answer);
          ++answers;
        }
    return {{"right", result.accuracy.right},
            {"asked", result.accuracy.asked},
            {"accuracy", result.accuracy.value()},
            {"low", interval.low},
            {"high", interval.high},
            {"chance", 1 / static_cast<double>(needle_.needles)},
            {"attention_on_answer", attention / static_cast<double>(answers)}};
  }

  const std::vector<PlannedRun>& runs_;
  const eval::NeedleOptions& needle_;
  const StudyOptions& options_;
  std::unique_ptr<dist::Comm> comm_;
  int64_t done_ = 0, total_ = 0;  // steps
};

}  // namespace

void make_vocabulary(const fs::path& folder, int32_t pieces, const std::vector<std::string>& texts) {
  if (fs::exists(folder / "tokenizer.model")) return;
  const std::vector<std::string> documents = text::read_documents({texts.begin(), texts.end()});
  text::write_vocabulary(folder, text::train_vocabulary(documents, pieces));
}

std::vector<ordered_json> carry_out(const std::vector<PlannedRun>& runs, const eval::NeedleOptions& needle,
                                    const StudyOptions& options) {
  return Study(runs, needle, options).go();
}

}  // namespace unchain::study
