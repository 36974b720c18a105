// Timing by turns: all rows of a comparison run once, then all again, so that a machine that changes its speed changes
// it for all. Medians are quoted, with the range, and every rate stands beside the matrix-product rate of the same
// rounds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/thread.h"
#include "ops/gemm.h"
#include "simd/kernels.h"
#include "tensor/tensor.h"
#include "unchain/version.h"

namespace unchain::bench {

struct Row {
  std::string name;
  double flops = 0;  // of one run (or bytes, for what is bound by memory)
  std::function<void()> run;
  std::vector<double> seconds;

  double median() const { return sorted()[seconds.size() / 2]; }
  double best() const { return sorted().front(); }
  double worst() const { return sorted().back(); }
  std::vector<double> sorted() const {
    std::vector<double> copy = seconds;
    std::sort(copy.begin(), copy.end());
    return copy;
  }
};

inline double time_once(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One run of each to warm up, then `repeats` rounds.
inline void time_by_turns(std::vector<Row>& rows, int repeats) {
  for (Row& row : rows) row.run();
  for (int i = 0; i < repeats; ++i) {
    for (Row& row : rows) row.seconds.push_back(time_once(row.run));
  }
}

// The ceiling: a square product, 2·size³ operations.
struct Ceiling {
  explicit Ceiling(int64_t size, DType type)
      : size_(size),
        type_(type),
        f32_(static_cast<size_t>(3 * size * size)),
        bf16_(static_cast<size_t>(2 * size * size)) {
    for (size_t i = 0; i < f32_.size(); ++i) f32_[i] = static_cast<float>(i % 7) * 0.1f;
    simd::convert(f32_.data(), bf16_.data(), bf16_.size());
  }
  double flops() const {
    return 2.0 * static_cast<double>(size_) * static_cast<double>(size_) * static_cast<double>(size_);
  }
  void run() {
    const int64_t n = size_ * size_;
    const Matrix c(f32_.data() + 2 * n, size_, size_);
    type_ == DType::bf16
        ? ops::gemm(c, Matrix(bf16_.data(), size_, size_), Matrix(bf16_.data() + n, size_, size_), ops::Transpose::no)
        : ops::gemm(c, Matrix(f32_.data(), size_, size_), Matrix(f32_.data() + n, size_, size_), ops::Transpose::no);
  }

 private:
  int64_t size_;
  DType type_;
  Buffer<float> f32_;
  Buffer<bf16> bf16_;
};

// Prints each row's times and its rate beside that of the first row, the ceiling, and adds them to result["rows"].
inline void report(const std::vector<Row>& rows, const std::string& dtype, int64_t length, nlohmann::json& result,
                   std::FILE* out) {
  for (const Row& row : rows) {
    const double rate = row.flops / row.median() * 1e-9, top = rows[0].flops / rows[0].median() * 1e-9;
    std::fprintf(out, "%s N %ld  %-22s median %8.3f ms  (%.3f to %.3f)  %6.1f GFLOP/s  %5.1f %% of gemm\n",
                 dtype.c_str(), static_cast<long>(length), row.name.c_str(), row.median() * 1e3, row.best() * 1e3,
                 row.worst() * 1e3, rate, 100 * rate / top);
    result["rows"].push_back({{"length", length},
                              {"name", row.name},
                              {"median_ms", row.median() * 1e3},
                              {"best_ms", row.best() * 1e3},
                              {"worst_ms", row.worst() * 1e3},
                              {"gflops", rate},
                              {"share_of_gemm", rate / top}});
  }
}

inline nlohmann::json describe_machine() {
  return {{"vector_kernels", simd::target_name()},
          {"products", ops::gemm_backend()},
          {"threads", threads()},
          {"compiler", __VERSION__},
          {"version", UNCHAIN_VERSION}};
}

}  // namespace unchain::bench
