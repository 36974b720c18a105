#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/thread.h"
#include "formats/convert.h"
#include "model/model_file.h"
#include "model/transformer.h"
#include "ops/gemm.h"

namespace unchain::model {
namespace {

// Loads the tensors of one file, in two steps: matrices are planned first, so that all converted ones lie in one block.
class Loader {
 public:
  Loader(const ModelFile& file, Transformer& model)
      : file_(file), model_(model), family_(*file.config().architecture) {}

  // A norm's weight or another vector [size]; empty if the architecture lacks it.
  Vector vector(Part part, int64_t layer, int64_t size) {
    if (tensor_name(file_.kind(), family_, part, layer, "weight").empty()) return {};
    Vector result = decode_vector(need(part, layer), {size});
    if (file_.kind() == FileKind::hugging_face && family_.hugging_face_norm_plus_one) {
      for (float& w : result) w += 1.0f;
    }
    return result;
  }

  // A matrix [outputs, inputs] with its bias if the file has one; filled by finish(). Matrices of the layers are packed
  // where products like that; the vocabulary's stay row by row, since tokens are looked up in it.
  void linear(ops::Linear& target, Part part, int64_t layer, int64_t outputs, int64_t inputs) {
    plan(target, need(part, layer), {outputs, inputs}, part != Part::token_embedding && part != Part::output);
    if (const Tensor* bias = file_.find(part, layer, "bias")) {
      model_.vectors.push_back(decode_vector(*bias, {outputs}));
      target.bias = model_.vectors.back().data();
    }
  }

  // The tensors of a layer's attention beside q, k, v and W_O.
  void member(Member& member, int64_t layer) {
    for (const attention::ExtraTensor& extra : extra_tensors(model_.config, layer)) {
      const Tensor* tensor = file_.find_extra(layer, extra.name);
      if (tensor == nullptr) {
        fail(ErrorCode::format, "{}: layer {}: the tensor self_attn.{} is missing, which attention '{}' needs",
             file_.path().string(), layer, extra.name, member.family.preset);
      }
      MemberWeights::for_each(member.weights, [&](const char* name, auto& target) {
        if (name != extra.name) return;
        if constexpr (std::is_same_v<decltype(target), ops::Linear&>) {
          plan(target, *tensor, extra.shape, true);
        } else {
          model_.vectors.push_back(decode_vector(*tensor, extra.shape));
          target = model_.vectors.back().data();
        }
      });
    }
  }

  void finish() {
    size_t bytes = 0;
    for (const Planned& p : planned_) bytes += p.bytes(model_.dtype);
    const std::shared_ptr<std::byte> block = allocate_large(bytes);
    if (block) model_.storage.push_back(block);
    std::byte* next = block.get();
    for (const Planned& p : planned_) {
      const int64_t rows = p.tensor->dim(0), cols = p.tensor->dim(1);
      // Matrix has no read-only form; weights are never written after this.
      std::byte* data = p.in_place(model_.dtype) ? const_cast<std::byte*>(p.tensor->bytes.data()) : next;
      if (p.packed) {
        p.target->packed = {data, model_.dtype, rows, cols};
        pack(*p.tensor, p.target->packed, data);
      } else {
        if (!p.in_place(model_.dtype)) convert(*p.tensor, data);
        p.target->weight = model_.dtype == DType::bf16 ? Matrix(reinterpret_cast<bf16*>(data), rows, cols)
                                                       : Matrix(reinterpret_cast<float*>(data), rows, cols);
      }
      if (p.in_place(model_.dtype)) model_.storage.push_back(p.tensor->owner);
      next += p.bytes(model_.dtype);
    }
    if (block) file_.release_pages();
  }

 private:
  struct Planned {
    ops::Linear* target;
    const Tensor* tensor;
    bool packed;

    // Used where it is mapped.
    bool in_place(DType dtype) const { return !packed && tensor->type == dtype; }
    // Of the converted or packed matrix, in whole cache lines.
    size_t bytes(DType dtype) const {
      if (in_place(dtype)) return 0;
      const ops::PackedMatrix order{nullptr, dtype, tensor->dim(0), tensor->dim(1)};
      const int64_t elements = packed ? order.panels() * order.panel_elements() : tensor->elements();
      return static_cast<size_t>(elements * info(dtype).bytes + 63) / 64 * 64;
    }
  };

  void plan(ops::Linear& target, const Tensor& tensor, const Shape& shape, bool may_pack) {
    if (tensor.shape != shape) {
      fail(ErrorCode::shape, "{}: {}: shape {}, config needs {}; see 'unchain inspect'", file_.path().string(),
           tensor.name, to_string(tensor.shape), to_string(shape));
    }
    if (!formats::can_decode(tensor.type)) {
      fail(ErrorCode::unsupported, "{}: {}: type {} cannot be read yet", file_.path().string(), tensor.name,
           info(tensor.type).name);
    }
    planned_.push_back({&target, &tensor, may_pack && ops::prefers_packed(model_.dtype, shape[0], shape[1])});
  }

  const Tensor& need(Part part, int64_t layer) const {
    const Tensor* tensor = file_.find(part, layer);
    if (tensor == nullptr) {
      fail(ErrorCode::format, "{}: the tensor {} is missing", file_.path().string(),
           tensor_name(file_.kind(), family_, part, layer, "weight"));
    }
    return *tensor;
  }

  Vector decode_vector(const Tensor& tensor, const Shape& shape) const {
    if (tensor.shape != shape) {
      fail(ErrorCode::shape, "{}: {}: shape {}, config needs {}", file_.path().string(), tensor.name,
           to_string(tensor.shape), to_string(shape));
    }
    if (!formats::can_decode(tensor.type)) {
      fail(ErrorCode::unsupported, "{}: {}: type {} cannot be read yet", file_.path().string(), tensor.name,
           info(tensor.type).name);
    }
    Vector result(static_cast<size_t>(tensor.elements()));
    formats::decode(tensor, 0, tensor.elements(), result.data());
    return result;
  }

  // Ranges of whole rows, about 64 k elements each.
  void convert(const Tensor& tensor, std::byte* out) const {
    const int64_t rows = tensor.dim(0), cols = tensor.dim(1);
    const int64_t chunk = std::max<int64_t>(1, 65536 / cols);
    parallel_for((rows + chunk - 1) / chunk, [&](int64_t part) {
      const int64_t first = part * chunk, count = std::min(chunk, rows - first);
      if (model_.dtype == DType::bf16) {
        formats::decode(tensor, first * cols, count * cols, reinterpret_cast<bf16*>(out) + first * cols);
      } else {
        formats::decode(tensor, first * cols, count * cols, reinterpret_cast<float*>(out) + first * cols);
      }
    });
  }

  // Panels in parallel, each decoded row by row into a buffer first.
  void pack(const Tensor& tensor, const ops::PackedMatrix& order, std::byte* out) const {
    constexpr int64_t kRows = ops::PackedMatrix::kPanelOutputs;
    const int64_t cols = order.inputs, panel_bytes = order.panel_elements() * info(order.type).bytes;
    parallel_for(order.panels(), [&](int64_t panel) {
      const int64_t first = panel * kRows, count = std::min(kRows, order.outputs - first);
      if (order.type == DType::bf16) {
        Buffer<bf16> rows(static_cast<size_t>(count * cols));
        formats::decode(tensor, first * cols, count * cols, rows.data());
        ops::pack_panel(out + panel * panel_bytes, Matrix(rows.data(), count, cols));
      } else {
        Buffer<float> rows(static_cast<size_t>(count * cols));
        formats::decode(tensor, first * cols, count * cols, rows.data());
        ops::pack_panel(out + panel * panel_bytes, Matrix(rows.data(), count, cols));
      }
    });
  }

  const ModelFile& file_;
  Transformer& model_;
  const Architecture& family_;
  std::vector<Planned> planned_;
};

}  // namespace

DType default_dtype() {
  return ops::has_fast_bf16() ? DType::bf16 : DType::f32;
}

int64_t Transformer::parameters() const {
  const auto size = [](const ops::Linear& l) { return l.outputs() * l.inputs(); };
  int64_t total = static_cast<int64_t>(output_norm.size()) + embedding.rows * embedding.cols;
  if (!config.tied) total += size(head);
  for (const Layer& layer : layers) {
    for (const Vector* v : {&layer.attention_norm, &layer.query_norm, &layer.key_norm, &layer.attention_post_norm,
                            &layer.feed_forward_norm, &layer.feed_forward_post_norm}) {
      total += static_cast<int64_t>(v->size());
    }
    for (const ops::Linear* l : {&layer.output, &layer.gate, &layer.up, &layer.down}) total += size(*l);
    MemberWeights::for_each(layer.attention.weights, [&](const char* /*name*/, const auto& tensor) {
      if constexpr (std::is_same_v<decltype(tensor), const ops::Linear&>) total += size(tensor);
    });
  }
  for (const Vector& vector : vectors) total += static_cast<int64_t>(vector.size());
  return total;
}

std::shared_ptr<const Transformer> load(const ModelFile& file, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail(ErrorCode::usage, "--dtype {}: models run in f32 or bf16", info(dtype).name);
  auto model = std::make_shared<Transformer>();
  model->config = file.config();
  model->dtype = dtype;
  const Config& c = model->config;
  model->layers.resize(c.layers.size());
  Loader loader(file, *model);
  ops::Linear embedding;
  loader.linear(embedding, Part::token_embedding, 0, c.vocabulary, c.width);
  if (!c.tied) loader.linear(model->head, Part::output, 0, c.vocabulary, c.width);
  model->output_norm = loader.vector(Part::output_norm, 0, c.width);
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    Layer& layer = model->layers[static_cast<size_t>(i)];
    layer.attention_norm = loader.vector(Part::attention_norm, i, c.width);
    layer.query_norm = loader.vector(Part::query_norm, i, c.head_dim);
    layer.key_norm = loader.vector(Part::key_norm, i, c.head_dim);
    layer.attention_post_norm = loader.vector(Part::attention_post_norm, i, c.width);
    layer.feed_forward_norm = loader.vector(Part::feed_forward_norm, i, c.width);
    layer.feed_forward_post_norm = loader.vector(Part::feed_forward_post_norm, i, c.width);
    layer.attention = make_member(c, i);
    const attention::AttentionShape& shape = layer.attention.shape;
    loader.linear(layer.attention.weights.query, Part::query, i, shape.query_width, c.width);
    loader.linear(layer.attention.weights.key, Part::key, i, shape.key_width, c.width);
    loader.linear(layer.attention.weights.value, Part::value, i, shape.value_width, c.width);
    loader.member(layer.attention, i);
    loader.linear(layer.output, Part::attention_output, i, c.width, shape.output_width());
    loader.linear(layer.gate, Part::gate, i, c.feed_forward, c.width);
    loader.linear(layer.up, Part::up, i, c.feed_forward, c.width);
    loader.linear(layer.down, Part::down, i, c.width, c.feed_forward);
  }
  if (const Tensor* beyond = file.find(Part::attention_norm, c.layer_count())) {
    fail(ErrorCode::format, "{}: holds the tensor {}, but its configuration says {} layers; see 'unchain inspect'",
         file.path().string(), beyond->name, c.layer_count());
  }
  loader.finish();
  model->embedding = embedding.weight;
  if (c.tied) model->head = embedding;
  return model;
}

std::shared_ptr<const Transformer> load(const std::filesystem::path& path, DType dtype) {
  return load(ModelFile::open(path), dtype);
}

}  // namespace unchain::model
