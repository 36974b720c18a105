#include "unchain/language_model.h"

#include <algorithm>

#include "attention/maps.h"
#include "base/check.h"
#include "model/context.h"
#include "model/model_file.h"
#include "unchain/version.h"

namespace unchain {
namespace {

// Copies one head's rows as they go by.
class OneHead : public attention::Observer {
 public:
  OneHead(AttentionMap& map, int layer, int head) : map_(map), layer_(layer), head_(head) {}
  bool wants(int layer) const override { return layer == layer_; }
  void on_maps(const attention::MapPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float* row = panel.positive_row(head_, r);
      std::copy(row, row + panel.keys, map_.weights.begin() + (panel.first_row + r) * map_.tokens);
    }
  }

 private:
  AttentionMap& map_;
  int layer_, head_;
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
  if (layer < 0 || layer >= layers()) fail(ErrorCode::usage, "layer {}: the model has 0 to {}", layer, layers() - 1);
  if (head < 0 || head >= heads()) fail(ErrorCode::usage, "head {}: the model has 0 to {}", head, heads() - 1);
  AttentionMap map;
  map.tokens = static_cast<int64_t>(ids.size());
  map.weights.assign(static_cast<size_t>(map.tokens * map.tokens), 0.0f);
  OneHead observer(map, static_cast<int>(layer), static_cast<int>(head));
  const attention::Taps taps{{&observer}, {}};
  state_->read(ids, -1, &taps);
  return map;
}

const char* version() noexcept {
  return UNCHAIN_VERSION;
}

}  // namespace unchain
