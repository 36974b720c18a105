// Arrays of random numbers for tests, the same on every machine; and their forms in other types.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "tensor/dtype.h"

namespace unchain::test {

inline constexpr double kEpsF32 = 0x1p-24;  // largest relative error of one rounding to f32
inline constexpr double kEpsBf16 = 0x1p-8;  // and to bf16 (docs/shapes.md)

inline std::vector<float> random_floats(size_t count, uint64_t seed, double scale = 1) {
  Rng rng(seed);
  std::vector<float> result(count);
  for (float& x : result) x = static_cast<float>(rng.normal() * scale);
  return result;
}

inline std::vector<double> random_doubles(size_t count, uint64_t seed, double scale = 1) {
  Rng rng(seed);
  std::vector<double> result(count);
  for (double& x : result) x = rng.normal() * scale;
  return result;
}

inline std::vector<bf16> to_bf16s(const std::vector<float>& values) {
  std::vector<bf16> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = to_bf16(values[i]);
  return result;
}

inline std::vector<double> widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
inline std::vector<double> widen(const std::vector<bf16>& values) {
  std::vector<double> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = static_cast<double>(to_f32(values[i]));
  return result;
}
inline std::vector<double> widen(const std::vector<double>& values) {
  return values;
}

// Every value rounded to bf16, as f32.
inline std::vector<float> through_bf16(const std::vector<float>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = to_f32(to_bf16(values[i]));
  return result;
}

}  // namespace unchain::test
