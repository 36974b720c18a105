#include "unchain/language_model.h"

#include <algorithm>
#include <span>

#include "attention/maps.h"
#include "base/check.h"
#include "model/context.h"
#include "model/model_file.h"
#include "unchain/version.h"

namespace unchain {
namespace {

// Copies the rows of some heads of one layer as they go by.
class Copier : public attention::Observer {
 public:
  Copier(std::span<AttentionMap> maps, int layer, int first_head)
      : maps_(maps), layer_(layer), first_head_(first_head) {}
  bool wants(int layer) const override { return layer == layer_; }
  void on_maps(const attention::MapPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r)
      for (size_t m = 0; m < maps_.size(); ++m) copy(panel, first_head_ + static_cast<int>(m), r, maps_[m]);
  }

 private:
  static void copy(const attention::MapPanel& panel, int head, int64_t r, AttentionMap& map) {
    const size_t whole = map.weights.size();
    const int64_t row = panel.first_row + r, start = row * map.tokens;
    panel.signed_row(head, r, map.weights.data() + start);
    if (panel.noise == nullptr) return;
    map.positive.resize(whole);
    map.noise.resize(whole);
    map.lambda.resize(static_cast<size_t>(map.tokens));
    std::copy_n(panel.positive_row(head, r), panel.keys, map.positive.begin() + start);
    std::copy_n(panel.noise_row(head, r), panel.keys, map.noise.begin() + start);
    map.lambda[static_cast<size_t>(row)] = panel.lambda[head * panel.rows + r];
  }

  std::span<AttentionMap> maps_;
  int layer_, first_head_;
};

}  // namespace

struct LanguageModel::State {
  std::shared_ptr<const model::Transformer> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;

  // A context that has read the ids.
  model::Context read(const std::vector<int32_t>& ids, int64_t keep, const attention::Taps* taps = nullptr) const {
    if (ids.empty()) fail(ErrorCode::usage, "ids: are empty, expected at least one token");
    model::Context context(model, static_cast<int64_t>(ids.size()));
    context.extend(ids, keep, taps);
    return context;
  }

  // Maps of heads first_head … first_head + count − 1.
  std::vector<AttentionMap> maps(const std::vector<int32_t>& ids, int64_t layer, int64_t first_head,
                                 int64_t count) const {
    std::vector<AttentionMap> maps(static_cast<size_t>(count));
    for (AttentionMap& map : maps) {
      map.tokens = static_cast<int64_t>(ids.size());
      map.weights.assign(ids.size() * ids.size(), 0.0f);
    }
    Copier observer(maps, static_cast<int>(layer), static_cast<int>(first_head));
    const attention::Taps taps{{&observer}, {}};
    read(ids, -1, &taps);
    return maps;
  }
};

LanguageModel::LanguageModel(std::shared_ptr<const State> state) : state_(std::move(state)) {}

LanguageModel LanguageModel::load(const std::string& path, Precision precision) {
  const model::ModelFile file = model::ModelFile::open(path);
  DType type = model::default_dtype();
  if (precision == Precision::f32) type = DType::f32;
  if (precision == Precision::bf16) type = DType::bf16;
  auto state = std::make_shared<State>();
  state->tokenizer = file.tokenizer();
  state->model = model::load(file, type);
  return LanguageModel(std::move(state));
}

int64_t LanguageModel::layers() const {
  return state_->model->config.layer_count();
}
int64_t LanguageModel::heads() const {
  return state_->model->config.heads;
}
int64_t LanguageModel::maps(int64_t layer) const {
  if (layer < 0 || layer >= layers()) fail(ErrorCode::usage, "layer {}: the model has 0 to {}", layer, layers() - 1);
  const model::Config& config = state_->model->config;
  const attention::AttentionConfig attention = attention::at_layer(config.attention, layer, layers());
  return attention::shape_of(attention, config.heads, config.kv_heads, config.head_dim).outputs();
}
int64_t LanguageModel::vocabulary() const {
  return state_->model->config.vocabulary;
}

std::vector<int32_t> LanguageModel::tokenize(std::string_view text) const {
  return state_->tokenizer->encode_with_bos(text);
}
size_t LanguageModel::bytes_without_piece(std::string_view text) const {
  tokenizer::Missing missing;
  state_->tokenizer->encode(text, tokenizer::Control::literal, &missing);
  size_t bytes = 0;
  for (const auto& [stretch, count] : missing) bytes += stretch.size() * count;
  return bytes;
}
std::string LanguageModel::detokenize(const std::vector<int32_t>& ids) const {
  return state_->tokenizer->decode(ids);
}

std::vector<double> LanguageModel::score(const std::vector<int32_t>& ids) const {
  model::Context context = state_->read(ids, -1);
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  std::vector<double> nll(targets.size());
  context.nll(nll, targets);
  return nll;
}

std::vector<float> LanguageModel::next_logits(const std::vector<int32_t>& ids) const {
  model::Context context = state_->read(ids, 1);
  std::vector<float> logits(static_cast<size_t>(vocabulary()));
  context.logits(Matrix(logits.data(), 1, vocabulary()), 0, 1);
  return logits;
}

AttentionMap LanguageModel::capture(const std::vector<int32_t>& ids, int64_t layer, int64_t head) const {
  const int64_t count = maps(layer);
  if (head < 0 || head >= count) fail(ErrorCode::usage, "head {}: layer {} has 0 to {}", head, layer, count - 1);
  return std::move(state_->maps(ids, layer, head, 1).front());
}
std::vector<AttentionMap> LanguageModel::capture(const std::vector<int32_t>& ids, int64_t layer) const {
  return state_->maps(ids, layer, 0, maps(layer));
}

const char* version() noexcept {
  return UNCHAIN_VERSION;
}

}  // namespace unchain
