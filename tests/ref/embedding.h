// Rows of a table in double, and the table's gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unchain::ref {

inline std::vector<double> embedding(const std::vector<double>& table, const std::vector<int32_t>& ids, size_t width,
                                     double scale) {
  std::vector<double> out;
  for (const int32_t id : ids) {
    for (size_t i = 0; i < width; ++i) out.push_back(scale * table[static_cast<size_t>(id) * width + i]);
  }
  return out;
}

inline std::vector<double> embedding_backward(const std::vector<double>& d_out, const std::vector<int32_t>& ids,
                                              size_t vocabulary, size_t width, double scale) {
  std::vector<double> d_table(vocabulary * width);
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t i = 0; i < width; ++i) {
      d_table[static_cast<size_t>(ids[t]) * width + i] += scale * d_out[t * width + i];
    }
  }
  return d_table;
}

}  // namespace unchain::ref
