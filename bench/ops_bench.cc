// Speed of the operations that are bound by memory, as bytes read and written a second: what a pass over the
// activations costs.
//   ops_bench [--rows 512] [--width 576] [--threads 0] [--repeats 50]
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "bench.h"
#include "ops/adamw.h"
#include "ops/gated.h"
#include "ops/rms_norm.h"

namespace {

using namespace unchain;

// One row against the formula, in double.
void check_rms_norm(const Matrix& out, const Matrix& x, const float* weight) {
  double squares = 0;
  for (int64_t i = 0; i < x.cols; ++i) squares += static_cast<double>(x.f32()[i]) * x.f32()[i];
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.cols) + 1e-5);
  // Rounding of a sum of `cols` squares in at least four lanes, and three roundings after it.
  const double tolerance = static_cast<double>(x.cols / 4 + 8) * 0x1p-24;
  for (int64_t i = 0; i < x.cols; ++i) {
    const double expected = x.f32()[i] * inverse * weight[i];
    if (!(std::abs(out.f32()[i] - expected) <= tolerance * std::abs(expected) + 1e-30)) {
      fail(ErrorCode::numeric, "rms_norm: column {}: {} is not {}: no timing of a wrong result", i, out.f32()[i],
           expected);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of operations that are bound by memory");
  int64_t rows = 512, width = 576;
  int thread_count = 0, repeats = 50;
  app.add_option("--rows", rows)->check(CLI::Range(1, 1 << 20));
  app.add_option("--width", width)->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", thread_count);
  app.add_option("--repeats", repeats)->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  try {
    set_threads(thread_count);
    const auto count = static_cast<size_t>(rows * width);
    Buffer<float> x(count), up(count), out(count), weight(static_cast<size_t>(width));
    for (size_t i = 0; i < count; ++i) {
      x[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
      up[i] = static_cast<float>(i % 5) * 0.2f;
    }
    std::fill(weight.data(), weight.data() + width, 1.5f);
    const Matrix in(x.data(), rows, width), other(up.data(), rows, width), result(out.data(), rows, width);
    ops::rms_norm_forward(result, {}, in, weight.data(), 1e-5f);
    check_rms_norm(result, in, weight.data());
    Buffer<float> more(count), inverse(static_cast<size_t>(rows));
    Buffer<bf16> narrow(count);
    const Matrix gradient(more.data(), rows, width);
    std::fill(more.data(), more.data() + count, 0.0f);
    ops::RmsNormWorkspace workspace;
    ops::rms_norm_forward(result, {inverse.data()}, in, weight.data(), 1e-5f);
    // The optimizer's numbers: value, both moments and the gradient, of a matrix of this size.
    std::vector<float> value(count), first(count), second(count);
    const auto norm_backward = [&] {
      ops::rms_norm_backward(gradient, value.data(), workspace, other, {inverse.data()}, in, weight.data());
    };
    const auto optimize = [&] {
      ops::adamw_step({value, first, second, narrow.span()}, {up.data(), count}, 3, 1, {.weight_decay = 0.1});
    };
    const auto gate_backward = [&] { ops::gated_backward(result, gradient, other, in, other, ops::Activation::silu); };
    double total = 0;
    const double bytes = 4.0 * static_cast<double>(count);
    std::vector<bench::Row> table = {
        {"copy", 2 * bytes, [&] { std::copy(x.data(), x.data() + count, out.data()); }, {}},
        {"rms_norm", 2 * bytes, [&] { ops::rms_norm_forward(result, {}, in, weight.data(), 1e-5f); }, {}},
        {"silu gate", 3 * bytes, [&] { ops::gated_forward(result, in, other, ops::Activation::silu); }, {}},
        {"gelu gate", 3 * bytes, [&] { ops::gated_forward(result, in, other, ops::Activation::gelu_tanh); }, {}},
        {"rms_norm back", 4 * bytes, norm_backward, {}},
        {"silu back", 5 * bytes, gate_backward, {}},
        {"adamw", 7.5 * bytes, optimize, {}},
        {"sum squares",
         bytes,
         [&] {
           total += ops::sum_squares({x.data(), count});
         },
         {}},
    };
    bench::time_by_turns(table, repeats);
    for (const bench::Row& row : table) {
      std::printf("%-13s median %8.4f ms  (%.4f to %.4f)  %6.1f GB/s\n", row.name.c_str(), row.median() * 1e3,
                  row.best() * 1e3, row.worst() * 1e3, row.flops / row.median() * 1e-9);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "ops_bench: %s\n", error.what());
    return 1;
  }
}
