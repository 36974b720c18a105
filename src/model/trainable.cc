#include "model/trainable.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/thread.h"
#include "formats/convert.h"
#include "model/model_file.h"
#include "model/save.h"
#include "model/train_layer.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::model {
namespace {

using Start = attention::ExtraTensor::Start;

// A tensor of the model as it is planned: where it comes from and how it begins.
struct Planned {
  std::string name, group;
  Shape shape;
  Start start = Start::weights;
  bool frozen = false;

  bool is_matrix() const { return shape.size() == 2 && name.ends_with(".weight"); }
};

std::vector<Planned> plan(const Config& c) {
  std::vector<Planned> all;
  const auto add = [&](std::string name, std::string group, Shape shape, Start start = Start::weights,
                       bool frozen = false) {
    all.push_back({std::move(name), std::move(group), std::move(shape), start, frozen});
  };
  add("model.embed_tokens.weight", "embedding", {c.vocabulary, c.width});
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".", attention = layer + "self_attn.";
    const attention::AttentionConfig family = attention::at_layer(c.attention, i, c.layer_count());
    const attention::AttentionShape shape = attention::shape_of(family, c.heads, c.kv_heads, c.head_dim);
    add(layer + "input_layernorm.weight", "norm", {c.width}, Start::ones);
    add(attention + "q_proj.weight", "attention", {shape.query_width, c.width});
    add(attention + "k_proj.weight", "attention", {shape.key_width, c.width});
    add(attention + "v_proj.weight", "attention", {shape.value_width, c.width});
    add(attention + "o_proj.weight", "attention", {c.width, shape.output_width()});
    for (const attention::ExtraTensor& extra : extra_tensors(c, i)) {
      add(attention + extra.name, extra.is_lambda ? "lambda" : "attention", extra.shape, extra.start, extra.is_frozen);
    }
    add(layer + "post_attention_layernorm.weight", "norm", {c.width}, Start::ones);
    add(layer + "mlp.gate_proj.weight", "feed_forward", {c.feed_forward, c.width});
    add(layer + "mlp.up_proj.weight", "feed_forward", {c.feed_forward, c.width});
    add(layer + "mlp.down_proj.weight", "feed_forward", {c.width, c.feed_forward});
  }
  add("model.norm.weight", "norm", {c.width}, Start::ones);
  if (!c.tied) add("lm_head.weight", "embedding", {c.vocabulary, c.width});
  return all;
}

void begin(std::span<float> value, const Planned& planned, uint64_t seed, double spread) {
  const double factor = planned.start == Start::normal ? 1.0 : planned.start == Start::tenth ? 0.1 : spread;
  if (planned.start == Start::zeros || planned.start == Start::ones)
    return std::fill(value.begin(), value.end(), planned.start == Start::ones ? 1.0f : 0.0f);
  // A stream for each name: equal names begin equally in every member of the family.
  Rng rng(seed, hash_bytes(planned.name));
  for (float& x : value) x = static_cast<float>(factor * rng.normal());
}

}  // namespace

struct Trainable::Implementation {
  Config config;
  DType dtype = DType::f32;
  bool recompute = false;
  Buffer<float> values, gradients;
  Buffer<bf16> narrow;
  std::vector<Parameter> parameters;
  std::map<std::string, Parameter*> by_name;
  std::vector<TrainLayer> layers;
  std::vector<LayerState> states;   // one a layer, or one for all where they are computed again
  std::vector<Buffer<float>> kept;  // the residual stream before each layer, where they are
  LayerScratch scratch;
  std::vector<ops::RopeTable> ropes;
  Buffer<float> hidden, final_rms, d_normed, d_hidden;
  TypedBuffer normed;
  ops::CrossEntropyWorkspace loss;
  std::vector<double> last_lambdas;

  Implementation(const Config& what, DType type) : config(what), dtype(type), ropes(what.ropes.size()) {
    const Architecture& family = *config.architecture;
    if (family.query_key_norm || family.post_norms) {
      fail(ErrorCode::unsupported, "training: architecture '{}' has norms whose gradients are not there yet; llama is",
           family.name);
    }
    if (dtype != DType::f32 && dtype != DType::bf16)
      fail(ErrorCode::usage, "training: dtype {}, expected f32 or bf16", info(dtype).name);
    const std::vector<Planned> planned = plan(config);
    size_t numbers = 0;
    for (const Planned& p : planned) numbers += (static_cast<size_t>(element_count(p.shape)) + 15) / 16 * 16;
    values = Buffer<float>(numbers);
    gradients = Buffer<float>(numbers);
    if (dtype == DType::bf16) narrow = Buffer<bf16>(numbers);
    std::fill_n(gradients.data(), numbers, 0.0f);
    size_t at = 0;
    parameters.reserve(planned.size());
    for (const Planned& p : planned) {
      const auto count = static_cast<size_t>(element_count(p.shape));
      Parameter parameter{
          p.name, p.group, p.shape, p.is_matrix(), {values.data() + at, count}, {gradients.data() + at, count},
          {},     p.frozen};
      if (dtype == DType::bf16 && p.is_matrix()) parameter.narrow = {narrow.data() + at, count};
      parameters.push_back(std::move(parameter));
      at += (count + 15) / 16 * 16;
    }
    for (Parameter& p : parameters) by_name[p.name] = &p;
    for (int64_t i = 0; i < config.layer_count(); ++i) {
      const std::string prefix = "model.layers." + std::to_string(i) + ".";
      layers.emplace_back(config, i, dtype, [&](const std::string& name) { return find(prefix + name); });
    }
  }

  Parameter* find(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  }

  void round_all() {
    parallel_for(static_cast<int64_t>(parameters.size()), [&](int64_t i) {
      Parameter& p = parameters[static_cast<size_t>(i)];
      if (!p.narrow.empty()) simd::convert(p.value.data(), p.narrow.data(), p.value.size());
    });
  }

  Weight weight(const std::string& name) const { return {find(name)}; }
  Weight head() const { return weight(config.tied ? "model.embed_tokens.weight" : "lm_head.weight"); }
  const ops::RopeTable& rope(size_t layer) const { return ropes[config.layers[layer].rope]; }

  StepRows check(std::span<double> nll, const TrainRows& rows) {
    const auto count = static_cast<size_t>(rows.rows * rows.context);
    if (rows.rows < 1 || rows.context < 1 || rows.inputs.size() != count || rows.targets.size() != count ||
        nll.size() != count || (!rows.starts.empty() && rows.starts.size() != count) ||
        (!rows.weights.empty() && rows.weights.size() != count)) {
      fail(ErrorCode::shape,
           "training: {} rows of {} tokens with {} inputs, {} targets, {} starts, {} weights, {} results", rows.rows,
           rows.context, rows.inputs.size(), rows.targets.size(), rows.starts.size(), rows.weights.size(), nll.size());
    }
    for (size_t r = 0; r < ropes.size(); ++r) {
      if (ropes[r].positions() < rows.context)
        ropes[r].extend(rows.context, config.ropes[r].frequencies(config.head_dim), 1.0);
    }
    return {rows.rows, rows.context, rows.starts.empty() ? nullptr : rows.starts.data()};
  }

  // Up to the normalised rows that the vocabulary product reads.
  Matrix run(const StepRows& step, const TrainRows& rows, bool keep) {
    const int64_t count = step.count(), width = config.width;
    hidden.reserve(static_cast<size_t>(count * width));
    final_rms.reserve(static_cast<size_t>(count));
    const Matrix h(hidden.data(), count, width);
    ops::embedding_forward(h, weight("model.embed_tokens.weight").matrix(), rows.inputs, config.embedding_scale);
    const bool all = keep && !recompute;
    states.resize(std::max(states.size(), all ? layers.size() : size_t{1}));
    kept.resize(layers.size());
    last_lambdas.clear();
    for (size_t i = 0; i < layers.size(); ++i) {
      if (keep && recompute) {
        kept[i].reserve(static_cast<size_t>(count * width));
        ops::copy_rows(Matrix(kept[i].data(), count, width), h);
      }
      LayerState& state = states[all ? i : 0];
      layers[i].forward(h, state, step, rope(i), scratch);
      last_lambdas.push_back(layers[i].mean_lambda(state, step));
    }
    const Matrix x = normed.get(dtype, count, width);
    const int64_t bad =
        ops::rms_norm_forward(x, {final_rms.data()}, h, weight("model.norm.weight").value(), config.norm_eps);
    if (bad >= 0) {
      fail(ErrorCode::numeric, "layer {}, row {}, position {}: activations are not finite", layers.size() - 1,
           bad / step.context, bad % step.context);
    }
    return x;
  }

  void check_observed(const TrainRows& rows) const {
    if (rows.rows != 1 || !rows.starts.empty()) {
      fail(ErrorCode::usage, "training: gradients of maps are shown of one text at a time, found {} rows{}", rows.rows,
           rows.starts.empty() ? "" : " of several documents");
    }
    if (dtype != DType::f32)
      fail(ErrorCode::unsupported, "training: gradients of maps are shown in f32, found {}", info(dtype).name);
  }

  void backward(const StepRows& step, const TrainRows& rows, const Matrix& d_x, attention::GradientObserver* observer) {
    const int64_t count = step.count(), width = config.width;
    d_hidden.reserve(static_cast<size_t>(count * width));
    const Matrix h(hidden.data(), count, width), d_h(d_hidden.data(), count, width);
    ops::fill_zero(d_h);
    const Weight norm = weight("model.norm.weight");
    ops::rms_norm_backward(d_h, norm.d_value(), scratch.norm, d_x, {final_rms.data()}, h, norm.value());
    for (size_t i = layers.size(); i-- > 0;) {
      LayerState& state = states[recompute ? 0 : i];
      if (recompute) {
        ops::copy_rows(h, Matrix(kept[i].data(), count, width));
        layers[i].forward(h, state, step, rope(i), scratch);
      }
      layers[i].backward(d_h, state, step, rope(i), scratch, observer);
    }
    ops::embedding_backward(weight("model.embed_tokens.weight").gradient(), d_h, rows.inputs, config.embedding_scale);
  }
};

Trainable::Trainable(const Config& config, DType dtype, uint64_t seed)
    : implementation_(std::make_unique<Implementation>(config, dtype)) {
  const std::vector<Planned> planned = plan(config);
  auto& parameters = implementation_->parameters;
  parallel_for(static_cast<int64_t>(planned.size()), [&](int64_t i) {
    const auto n = static_cast<size_t>(i);
    begin(parameters[n].value, planned[n], seed, config.initializer_range);
  });
  implementation_->round_all();
}

Trainable::Trainable(const ModelFile& file, DType dtype)
    : implementation_(std::make_unique<Implementation>(file.config(), dtype)) {
  std::map<std::string, Tensor> tensors;
  for (Tensor& tensor : convert_tensors(file, FileKind::hugging_face, {DType::f32}))
    tensors.emplace(tensor.name, std::move(tensor));
  for (Parameter& p : implementation_->parameters) {
    const auto found = tensors.find(p.name);
    if (found == tensors.end()) fail(ErrorCode::format, "{}: the tensor {} is missing", file.path().string(), p.name);
    if (found->second.shape != p.shape) {
      fail(ErrorCode::shape, "{}: {}: shape {}, config needs {}", file.path().string(), p.name,
           to_string(found->second.shape), to_string(p.shape));
    }
    formats::decode(found->second, 0, static_cast<int64_t>(p.value.size()), p.value.data());
    tensors.erase(found);
  }
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(".bias"))
      fail(ErrorCode::unsupported, "{}: {}: models with biases cannot be trained yet", file.path().string(), name);
  }
  implementation_->round_all();
}

Trainable::~Trainable() = default;
Trainable::Trainable(Trainable&&) noexcept = default;

const Config& Trainable::config() const {
  return implementation_->config;
}
DType Trainable::dtype() const {
  return implementation_->dtype;
}
std::span<Parameter> Trainable::parameters() {
  return implementation_->parameters;
}
int64_t Trainable::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& p : implementation_->parameters) count += static_cast<int64_t>(p.value.size());
  return count;
}
void Trainable::set_recompute(bool recompute) {
  implementation_->recompute = recompute;
}
void Trainable::zero_gradients() {
  Buffer<float>& all = implementation_->gradients;
  parallel_ranges(static_cast<int64_t>(all.size()), 1 << 16,
                  [&](int64_t first, int64_t end) { std::fill(all.data() + first, all.data() + end, 0.0f); });
}

void Trainable::forward_backward(std::span<double> nll, const TrainRows& rows, attention::GradientObserver* observer) {
  Implementation& m = *implementation_;
  if (observer) m.check_observed(rows);
  const StepRows step = m.check(nll, rows);
  const Matrix x = m.run(step, rows, true);
  m.d_normed.reserve(static_cast<size_t>(step.count() * m.config.width));
  const Matrix d_x(m.d_normed.data(), step.count(), m.config.width);
  const std::vector<float> ones(rows.weights.empty() ? rows.targets.size() : 0, 1.0f);
  ops::cross_entropy_forward_backward(nll, d_x, {m.head().gradient(), nullptr}, m.loss, x, m.head().linear(),
                                      rows.targets, rows.weights.empty() ? ones : rows.weights, m.config.logit_cap);
  m.backward(step, rows, d_x, observer);
}

void Trainable::forward(std::span<double> nll, const TrainRows& rows) {
  Implementation& m = *implementation_;
  const StepRows step = m.check(nll, rows);
  const Matrix x = m.run(step, rows, false);
  ops::cross_entropy_forward(nll, m.loss, x, m.head().linear(), rows.targets, m.config.logit_cap);
}

std::vector<double> Trainable::lambdas() const {
  return implementation_->last_lambdas;
}

int64_t parameter_count(const Config& config) {
  int64_t count = 0;
  for (const Planned& p : plan(config)) count += element_count(p.shape);
  return count;
}

}  // namespace unchain::model
