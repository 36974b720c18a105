#include <cstring>

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
    Vector result = decode_vector(need(part, layer), size);
    if (file_.kind() == FileKind::hugging_face && family_.hugging_face_norm_plus_one) {
      for (float& w : result) w += 1.0f;
    }
    return result;
  }

  // A matrix [outputs, inputs] with its bias if the file has one; filled by finish().
  void linear(ops::Linear& target, Part part, int64_t layer, int64_t outputs, int64_t inputs) {
    const Tensor& tensor = need(part, layer);
    if (tensor.shape != Shape{outputs, inputs}) {
      fail(ErrorCode::shape, "{}: {}: shape {}, config needs [{}, {}]; see 'unchain inspect'", file_.path().string(),
           tensor.name, to_string(tensor.shape), outputs, inputs);
    }
    if (!formats::can_decode(tensor.type)) {
      fail(ErrorCode::unsupported, "{}: {}: type {} cannot be read yet", file_.path().string(), tensor.name,
           info(tensor.type).name);
    }
    planned_.push_back({&target, &tensor});
    if (const Tensor* bias = file_.find(part, layer, "bias")) {
      model_.biases.push_back(decode_vector(*bias, outputs));
      target.bias = model_.biases.back().data();
    }
  }

  void finish() {
    size_t bytes = 0;
    for (const Planned& p : planned_) bytes += in_place(*p.tensor) ? 0 : padded(*p.tensor);
    const std::shared_ptr<std::byte> block = allocate_large(bytes);
    if (block) model_.storage.push_back(block);
    std::byte* next = block.get();
    for (const Planned& p : planned_) {
      const int64_t rows = p.tensor->dim(0), cols = p.tensor->dim(1);
      const std::byte* data = p.tensor->bytes.data();
      if (in_place(*p.tensor)) {
        model_.storage.push_back(p.tensor->owner);
      } else {
        convert(*p.tensor, next);
        data = next;
        next += padded(*p.tensor);
      }
      // Matrix has no read-only form; weights are never written after this.
      void* values = const_cast<std::byte*>(data);
      p.target->weight = model_.dtype == DType::bf16 ? Matrix(static_cast<bf16*>(values), rows, cols)
                                                     : Matrix(static_cast<float*>(values), rows, cols);
    }
    if (block) file_.release_pages();
  }

 private:
  struct Planned {
    ops::Linear* target;
    const Tensor* tensor;
  };

  bool in_place(const Tensor& tensor) const { return tensor.type == model_.dtype; }
  size_t padded(const Tensor& tensor) const {
    const auto bytes = static_cast<size_t>(tensor.elements() * info(model_.dtype).bytes);
    return (bytes + 63) / 64 * 64;
  }

  const Tensor& need(Part part, int64_t layer) const {
    const Tensor* tensor = file_.find(part, layer);
    if (tensor == nullptr) {
      fail(ErrorCode::format, "{}: the tensor {} is missing", file_.path().string(),
           tensor_name(file_.kind(), family_, part, layer, "weight"));
    }
    return *tensor;
  }

  Vector decode_vector(const Tensor& tensor, int64_t size) const {
    if (tensor.shape != Shape{size}) {
      fail(ErrorCode::shape, "{}: {}: shape {}, config needs [{}]", file_.path().string(), tensor.name,
           to_string(tensor.shape), size);
    }
    Vector result(static_cast<size_t>(size));
    formats::decode(tensor, 0, size, result.data());
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
  int64_t total = static_cast<int64_t>(output_norm.size()) + embedding.rows * embedding.cols;
  if (!config.tied) total += head.outputs() * head.inputs();
  for (const Layer& layer : layers) {
    for (const Vector* v : {&layer.attention_norm, &layer.query_norm, &layer.key_norm, &layer.attention_post_norm,
                            &layer.feed_forward_norm, &layer.feed_forward_post_norm}) {
      total += static_cast<int64_t>(v->size());
    }
    for (const ops::Linear* l :
         {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up, &layer.down})
      total += l->outputs() * l->inputs();
  }
  for (const Vector& bias : biases) total += static_cast<int64_t>(bias.size());
  return total;
}

std::shared_ptr<const Transformer> load(const ModelFile& file, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail(ErrorCode::usage, "--dtype {}: models run in f32 or bf16", info(dtype).name);
  auto model = std::make_shared<Transformer>();
  model->config = file.config();
  model->dtype = dtype;
  const Config& c = model->config;
  const int64_t query_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
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
    loader.linear(layer.query, Part::query, i, query_width, c.width);
    loader.linear(layer.key, Part::key, i, kv_width, c.width);
    loader.linear(layer.value, Part::value, i, kv_width, c.width);
    loader.linear(layer.output, Part::attention_output, i, c.width, query_width);
    loader.linear(layer.gate, Part::gate, i, c.feed_forward, c.width);
    loader.linear(layer.up, Part::up, i, c.feed_forward, c.width);
    loader.linear(layer.down, Part::down, i, c.width, c.feed_forward);
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
