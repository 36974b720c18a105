// Speed of the products that training is made of, beside the ceiling of a square product in the same rounds: the three
// of a linear layer (6·T·in·out operations) and the cross entropy with gradients (6·T·V·D that are needed, whatever is
// computed again).
//   training_bench [--rows 4096] [--width 256] [--outputs 768] [--vocabulary 4096] [--threads 0] [--repeats 10]
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "bench.h"
#include "ops/cross_entropy.h"
#include "ops/rows.h"

namespace {

using namespace unchain;

struct Sizes {
  int64_t rows = 4096, width = 256, outputs = 768, vocabulary = 4096;
};

// Numbers of one type; both copies hold the same values.
struct Numbers {
  Buffer<float> wide;
  Buffer<bf16> narrow;

  Numbers(int64_t count, float step) : wide(static_cast<size_t>(count)), narrow(static_cast<size_t>(count)) {
    for (size_t i = 0; i < wide.size(); ++i) {
      narrow[i] = to_bf16(static_cast<float>(i * 7 % 31) * step - 15 * step);
      wide[i] = to_f32(narrow[i]);
    }
  }
  Matrix view(DType type, int64_t rows, int64_t cols) {
    return type == DType::bf16 ? Matrix(narrow.data(), rows, cols) : Matrix(wide.data(), rows, cols);
  }
};

// Σ over `count` products of numbers that lie `step` apart, in double; fails if `actual` is off by more than f32 sums
// can be.
void check_sum(const char* name, float actual, const float* a, int64_t a_step, const float* b, int64_t b_step,
               int64_t count) {
  double expected = 0, size = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double product = static_cast<double>(a[i * a_step]) * static_cast<double>(b[i * b_step]);
    expected += product;
    size += std::abs(product);
  }
  if (!(std::abs(static_cast<double>(actual) - expected) <= static_cast<double>(count + 2) * 0x1p-24 * size)) {
    fail(ErrorCode::numeric, "{}: {} is not {}: no timing of a wrong result", name, actual, expected);
  }
}

void run_type(DType type, const Sizes& s, int repeats) {
  Numbers x(s.rows * s.width, 0.05f), d_y(s.rows * s.outputs, 0.03f), w(s.outputs * s.width, 0.02f),
      head(s.vocabulary * s.width, 0.02f);
  Buffer<float> y(static_cast<size_t>(s.rows * s.outputs)), d_x(static_cast<size_t>(s.rows * s.width)),
      d_w(static_cast<size_t>(s.outputs * s.width)), d_head(static_cast<size_t>(s.vocabulary * s.width));
  const Matrix input = x.view(type, s.rows, s.width), upstream = d_y.view(type, s.rows, s.outputs),
               weight = w.view(type, s.outputs, s.width), out(y.data(), s.rows, s.outputs),
               d_input(d_x.data(), s.rows, s.width), d_weight(d_w.data(), s.outputs, s.width),
               d_vocabulary(d_head.data(), s.vocabulary, s.width);
  const ops::Linear linear{weight}, vocabulary{head.view(type, s.vocabulary, s.width)};
  std::vector<int32_t> targets(static_cast<size_t>(s.rows));
  for (size_t t = 0; t < targets.size(); ++t)
    targets[t] = static_cast<int32_t>(t * 13 % static_cast<size_t>(s.vocabulary));
  const std::vector<float> weights(targets.size(), 1 / static_cast<float>(s.rows));
  std::vector<double> nll(targets.size());
  ops::CrossEntropyWorkspace workspace;
  ops::fill_zero(d_weight);
  ops::fill_zero(d_vocabulary);
  ops::linear_backward(d_input, ops::Store::overwrite, {d_weight}, upstream, input, weight);
  check_sum("d_x", d_x[1], d_y.wide.data(), 1, w.wide.data() + 1, s.width, s.outputs);
  check_sum("d_weight", d_w[1], d_y.wide.data(), s.outputs, x.wide.data() + 1, s.width, s.rows);
  const double loss = ops::cross_entropy_forward_backward(nll, d_input, {d_vocabulary}, workspace, input, vocabulary,
                                                          targets, weights, 0);
  std::vector<double> forward(targets.size());
  ops::cross_entropy_forward(forward, workspace, input, vocabulary, targets, 0);
  double mean = 0;
  for (const double value : forward) mean += value / static_cast<double>(s.rows);
  if (!(std::abs(loss - mean) <= 1e-5 * mean)) fail(ErrorCode::numeric, "loss: {} is not {}", loss, mean);

  bench::Ceiling ceiling(1024, type);
  const double layer =
                   2.0 * static_cast<double>(s.rows) * static_cast<double>(s.width) * static_cast<double>(s.outputs),
               logits =
                   2.0 * static_cast<double>(s.rows) * static_cast<double>(s.width) * static_cast<double>(s.vocabulary);
  using ops::Store;
  std::vector<bench::Row> table = {
      {"ceiling", ceiling.flops(), [&] { ceiling.run(); }, {}},
      {"forward", layer, [&] { ops::linear_forward(out, input, linear); }, {}},
      {"d_x", layer, [&] { ops::linear_backward(d_input, Store::overwrite, {}, upstream, input, weight); }, {}},
      {"d_x +=", layer, [&] { ops::linear_backward(d_input, Store::accumulate, {}, upstream, input, weight); }, {}},
      {"d_weight +=",
       layer,
       [&] { ops::linear_backward({}, Store::overwrite, {d_weight}, upstream, input, weight); },
       {}},
      {"both",
       2 * layer,
       [&] { ops::linear_backward(d_input, Store::overwrite, {d_weight}, upstream, input, weight); },
       {}},
      {"loss forward", logits, [&] { ops::cross_entropy_forward(nll, workspace, input, vocabulary, targets, 0); }, {}},
      {"loss gradients",
       3 * logits,
       [&] {
         ops::cross_entropy_forward_backward(nll, d_input, {d_vocabulary}, workspace, input, vocabulary, targets,
                                             weights, 0);
       },
       {}},
  };
  bench::time_by_turns(table, repeats);
  for (const bench::Row& row : table) {
    const double rate = row.flops / row.median();
    std::printf("%-5s %-15s median %8.3f ms  (%.3f to %.3f)  %6.0f GFLOP/s  %3.0f %% of the ceiling\n",
                std::string(info(type).name).c_str(), row.name.c_str(), row.median() * 1e3, row.best() * 1e3,
                row.worst() * 1e3, rate * 1e-9, 100 * rate * table[0].median() / table[0].flops);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of the products that training is made of");
  Sizes sizes;
  int thread_count = 0, repeats = 10;
  app.add_option("--rows", sizes.rows)->check(CLI::Range(1, 1 << 20));
  app.add_option("--width", sizes.width)->check(CLI::Range(2, 1 << 16));
  app.add_option("--outputs", sizes.outputs)->check(CLI::Range(1, 1 << 20));
  app.add_option("--vocabulary", sizes.vocabulary)->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", thread_count);
  app.add_option("--repeats", repeats)->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  try {
    set_threads(thread_count);
    for (const DType type : {DType::f32, DType::bf16}) run_type(type, sizes, repeats);
  } catch (const Error& error) {
    std::fprintf(stderr, "training_bench: %s\n", error.what());
    return 1;
  }
}
