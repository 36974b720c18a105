#include "formats/convert.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "formats/blocks.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

constexpr int64_t kChunk = 4096;         // values at a time through a small f32 buffer; a multiple of every block
constexpr int64_t kGrain = 64 * kChunk;  // values that are worth a thread

// One block of a quantised type: see blocks.h.
using DecodeBlock = void (*)(const uint8_t*, float*) noexcept;

template <DecodeBlock decode_block>
void decode_blocks(const uint8_t* from, int64_t blocks, int64_t elements, int64_t bytes, float* out) {
  for (int64_t b = 0; b < blocks; ++b) decode_block(from + b * bytes, out + b * elements);
}

template <class T, class ToFloat>
void decode_plain(const uint8_t* from, int64_t count, float* out, const ToFloat& to_float) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(load<T>(from + i * static_cast<int64_t>(sizeof(T))));
}

// Decodes values that are known to lie in the tensor.
void decode_range(DType type, const uint8_t* from, int64_t count, float* out) {
  const int64_t elements = info(type).elements, bytes = info(type).bytes, blocks = count / elements;
  switch (type) {
    case DType::f32:
      std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::f16:
      decode_plain<uint16_t>(from, count, out, half_to_f32);
      break;
    case DType::bf16:
      decode_plain<bf16>(from, count, out, [](bf16 x) { return to_f32(x); });
      break;
    case DType::f64:
      decode_plain<double>(from, count, out, [](double x) { return static_cast<float>(x); });
      break;
    case DType::q4_1:
      decode_blocks<decode_q4_1>(from, blocks, elements, bytes, out);
      break;
    case DType::q5_0:
      decode_blocks<decode_q5_0>(from, blocks, elements, bytes, out);
      break;
    case DType::q8_0:
      decode_blocks<decode_q8_0>(from, blocks, elements, bytes, out);
      break;
    case DType::q4_k:
      decode_blocks<decode_q4_k>(from, blocks, elements, bytes, out);
      break;
    case DType::q6_k:
      decode_blocks<decode_q6_k>(from, blocks, elements, bytes, out);
      break;
    default:
      break;
  }
}

// The bytes where element `first` begins, after all checks.
const uint8_t* checked(const Tensor& tensor, int64_t first, int64_t count) {
  if (!can_decode(tensor.type)) {
    fail(ErrorCode::unsupported,
         "tensor {}: values of type {} cannot be read; use a file of f32, f16, bf16, f64, q4_1, q5_0, q8_0, q4_k or "
         "q6_k tensors",
         printable(tensor.name), info(tensor.type).name);
  }
  const int64_t total = tensor.elements(), elements = info(tensor.type).elements, bytes = info(tensor.type).bytes;
  if (first < 0 || count < 0 || first > total || count > total - first || first % elements != 0 ||
      count % elements != 0) {
    fail(ErrorCode::shape,
         "tensor {}: {} elements from {} of {} are asked for, expected a range inside on blocks of {}",
         printable(tensor.name), count, first, total, elements);
  }
  if ((first + count) / elements > static_cast<int64_t>(tensor.bytes.size()) / bytes) {
    fail(ErrorCode::shape, "tensor {}: has {} bytes, shape {} needs more", printable(tensor.name), tensor.bytes.size(),
         to_string(tensor.shape));
  }
  return reinterpret_cast<const uint8_t*>(tensor.bytes.data()) + first / elements * bytes;
}

[[noreturn]] void too_large(const Tensor& tensor, float value, DType type) {
  fail(ErrorCode::numeric, "tensor {}: holds {}, which type {} cannot; use f32 or bf16", printable(tensor.name), value,
       info(type).name);
}

// One q8_0 block: the scale is max|x| / 127, values round half away from zero.
void encode_q8_0(const Tensor& tensor, const float* in, uint8_t* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) {
    if (!std::isfinite(in[i])) too_large(tensor, in[i], DType::q8_0);
    largest = std::max(largest, std::fabs(in[i]));
  }
  const float scale = largest / 127.0f;
  const uint16_t half = f32_to_f16(scale);
  if ((half & 0x7fffu) == 0x7c00u) too_large(tensor, largest, DType::q8_0);
  // Below the smallest normal number 1/scale may overflow; the f16 scale is zero there, and so is every value.
  const float inverse = scale >= 0x1p-126f ? 1.0f / scale : 0.0f;
  std::memcpy(block, &half, sizeof(half));
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(in[i] * inverse)));
}

void encode(const Tensor& tensor, DType type, const float* in, int64_t count, uint8_t* out) {
  switch (type) {
    case DType::f32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::bf16:
      for (int64_t i = 0; i < count; ++i) {
        const bf16 rounded = to_bf16(in[i]);
        std::memcpy(out + 2 * i, &rounded, 2);
      }
      break;
    case DType::f16:
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t half = f32_to_f16(in[i]);
        if ((half & 0x7fffu) == 0x7c00u && std::isfinite(in[i])) too_large(tensor, in[i], type);
        std::memcpy(out + 2 * i, &half, 2);
      }
      break;
    case DType::q8_0:
      for (int64_t i = 0; i < count / 32; ++i) encode_q8_0(tensor, in + 32 * i, out + 34 * i);
      break;
    default:
      break;
  }
}

}  // namespace

bool can_decode(DType type) noexcept {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f64:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q8_0:
    case DType::q4_k:
    case DType::q6_k:
      return true;
    default:
      return false;
  }
}

void decode(const Tensor& tensor, int64_t first, int64_t count, float* out) {
  const uint8_t* from = checked(tensor, first, count);
  if (count > 0) decode_range(tensor.type, from, count, out);
}

void decode(const Tensor& tensor, int64_t first, int64_t count, bf16* out) {
  const uint8_t* from = checked(tensor, first, count);
  if (count == 0) return;
  if (tensor.type == DType::bf16) {
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(bf16));
    return;
  }
  const int64_t elements = info(tensor.type).elements, bytes = info(tensor.type).bytes;
  float values[kChunk];
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t part = std::min(kChunk, count - done);
    decode_range(tensor.type, from + done / elements * bytes, part, values);
    for (int64_t i = 0; i < part; ++i) out[done + i] = to_bf16(values[i]);
  }
}

Tensor convert(const Tensor& tensor, DType type) {
  if (type == tensor.type) return tensor;
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16 && type != DType::q8_0) {
    fail(ErrorCode::unsupported, "tensor {}: cannot be written as {}; use f32, f16, bf16 or q8_0",
         printable(tensor.name), info(type).name);
  }
  const int64_t count = tensor.elements(), elements = info(type).elements, bytes = info(type).bytes;
  const int64_t total_bytes = byte_count(type, tensor.shape);
  checked(tensor, 0, count);
  auto buffer = std::make_shared<Buffer<std::byte>>(static_cast<size_t>(total_bytes));
  auto* out = reinterpret_cast<uint8_t*>(buffer->data());
  // Ranges are whole chunks, so that they begin on blocks of both types.
  parallel_ranges((count + kChunk - 1) / kChunk, kGrain / kChunk, [&](int64_t begin, int64_t end) {
    float values[kChunk];
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kChunk, part = std::min(kChunk, count - first);
      decode(tensor, first, part, values);
      encode(tensor, type, values, part, out + first / elements * bytes);
    }
  });
  return {tensor.name, type, tensor.shape, {buffer->data(), static_cast<size_t>(total_bytes)}, buffer};
}

}  // namespace unchain::formats
