#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "formats/convert.h"
#include "model/member.h"
#include "model/save.h"

namespace unchain::model {
namespace {

Tensor with_bytes(const Tensor& like, DType type, const std::shared_ptr<std::byte>& data) {
  Tensor result = like;
  result.type = type;
  result.owner = data;
  result.bytes = {data.get(), static_cast<size_t>(byte_count(type, like.shape))};
  return result;
}

Tensor to_f32(const Tensor& tensor) {
  const auto data = allocate_large(static_cast<size_t>(tensor.elements()) * sizeof(float));
  formats::decode(tensor, 0, tensor.elements(), reinterpret_cast<float*>(data.get()));
  return with_bytes(tensor, DType::f32, data);
}

// The rows of each head in the other order: halves (i and i + E/2 turn together) or neighbours (2i and 2i + 1). Whole
// rows move, so any type will do.
Tensor reorder_rows(const Tensor& tensor, int64_t head_dim, ops::RopePairs to) {
  const int64_t rows = tensor.dim(0), half = head_dim / 2;
  const size_t row_bytes = tensor.bytes.size() / static_cast<size_t>(rows);
  const auto data = allocate_large(tensor.bytes.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_dim, i = row % head_dim;
    const int64_t from = to == ops::RopePairs::neighbours ? i % 2 * half + i / 2 : i % half * 2 + i / half;
    std::memcpy(data.get() + static_cast<size_t>(row) * row_bytes,
                tensor.bytes.data() + static_cast<size_t>(head * head_dim + from) * row_bytes, row_bytes);
  }
  return with_bytes(tensor, tensor.type, data);
}

Tensor add_one(const Tensor& tensor, float by) {
  Tensor result = to_f32(tensor);
  float* values = reinterpret_cast<float*>(const_cast<std::byte*>(result.bytes.data()));
  for (int64_t i = 0; i < result.elements(); ++i) values[i] += by;
  return result;
}

bool is_quantised(DType type) {
  return info(type).elements > 1;
}

Tensor retype(const Tensor& tensor, FileKind kind, const SaveOptions& options) {
  // A folder holds no quantised types, and GGUF keeps vectors in f32.
  if (tensor.shape.size() < 2) return kind == FileKind::gguf && tensor.type != DType::f32 ? to_f32(tensor) : tensor;
  if (!options.type) return kind == FileKind::hugging_face && is_quantised(tensor.type) ? to_f32(tensor) : tensor;
  DType type = *options.type;
  if (type == DType::q8_0 && tensor.shape.back() % info(type).elements != 0) type = DType::f32;
  return formats::convert(tensor, type);
}

}  // namespace

std::vector<Tensor> convert_tensors(const ModelFile& file, FileKind kind, const SaveOptions& options) {
  const Config& config = file.config();
  const Architecture& family = *config.architecture;
  const ops::RopePairs pairs = kind == FileKind::gguf ? family.gguf_pairs : ops::RopePairs::halves;
  if (kind == FileKind::gguf && !config.attention.is_softmax()) {
    fail(ErrorCode::unsupported, "{}: a GGUF file cannot hold attention '{}'; export to a folder instead",
         file.path().string(), config.attention.preset);
  }
  std::vector<Tensor> result;
  const auto add = [&](Part part, int64_t layer, std::string_view suffix) {
    const Tensor* found = file.find(part, layer, suffix);
    if (found == nullptr || (part == Part::output && config.tied)) return;
    Tensor tensor = *found;
    if ((part == Part::query || part == Part::key) && pairs != config.pairs)
      tensor = reorder_rows(tensor, config.head_dim, pairs);
    if (is_norm(part) && family.hugging_face_norm_plus_one && kind != file.kind())
      tensor = add_one(tensor, kind == FileKind::gguf ? 1.0f : -1.0f);
    tensor = retype(tensor, kind, options);
    tensor.name = tensor_name(kind, family, part, layer, suffix);
    result.push_back(std::move(tensor));
  };
  for (const char* suffix : {"weight", "bias"}) {
    for (const Part part : kModelParts) add(part, 0, suffix);
  }
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const Part part : kLayerParts) {
      for (const char* suffix : {"weight", "bias"}) add(part, layer, suffix);
    }
    for (const attention::ExtraTensor& extra : extra_tensors(config, layer)) {
      const Tensor* found = file.find_extra(layer, extra.name);
      if (found != nullptr) result.push_back(retype(*found, kind, options));
    }
  }
  return result;
}

}  // namespace unchain::model
