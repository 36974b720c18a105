// Speed of the fused causal attention, forward, against the matrix-product rate of the same run and a naive form that
// holds whole maps. Operations counted: N²/2·(E + W) multiply-adds a head, the least that a causal map needs.
//   attention_bench [--lengths 1024,2048,4096] [--heads 8] [--width 64] [--dtype f32|bf16] [--threads 0] [--repeats 7]
//   [--json FILE|-]
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "attention/attention.h"
#include "base/check.h"
#include "base/file.h"
#include "base/rng.h"
#include "bench.h"

namespace {

using namespace unchain;

struct Case {
  attention::SignedConfig config;
  int64_t heads, width;
  int64_t n;
  DType type;
  Buffer<float> q, k, v, out;
  Buffer<bf16> k_narrow, v_narrow, out_narrow;
  attention::AttentionWorkspace workspace;

  Case(int64_t head_count, int64_t head_width, int64_t length, DType dtype)
      : config{attention::softmax_layout(head_count, head_count), 1.0f / std::sqrt(static_cast<float>(head_width)), 0,
               0},
        heads(head_count),
        width(head_width),
        n(length),
        type(dtype) {
    const auto count = static_cast<size_t>(heads * length * width);
    Rng rng(1);
    for (Buffer<float>* buffer : {&q, &k, &v, &out}) {
      *buffer = Buffer<float>(count);
      for (size_t i = 0; i < count; ++i) (*buffer)[i] = static_cast<float>(rng.uniform() * 2 - 1);
    }
    k_narrow = Buffer<bf16>(count);
    v_narrow = Buffer<bf16>(count);
    out_narrow = Buffer<bf16>(count);
    simd::convert(k.data(), k_narrow.data(), count);
    simd::convert(v.data(), v_narrow.data(), count);
  }
  double flops() const {
    return static_cast<double>(heads) * static_cast<double>(n) * static_cast<double>(n) *
           static_cast<double>(2 * width);
  }
  void run() {
    const bool narrow = type == DType::bf16;
    const auto heads_of = [&](auto* data) {
      return attention::HeadRows{data, type, heads, width, n * width, width};  // head-major, as in a cache
    };
    attention::SignedInputs in;
    in.q = attention::HeadRows::side_by_side(Matrix(q.data(), n, heads * width), heads);
    in.k = narrow ? heads_of(k_narrow.data()) : heads_of(k.data());
    in.v = narrow ? heads_of(v_narrow.data()) : heads_of(v.data());
    in.rows = in.key_rows = n;
    attention::attention_forward(
        narrow ? Matrix(out_narrow.data(), n, heads * width) : Matrix(out.data(), n, heads * width), in, config,
        workspace);
  }
  float result(int64_t row, int64_t column) const {
    const auto i = static_cast<size_t>(row * heads * width + column);
    return type == DType::bf16 ? to_f32(out_narrow[i]) : out[i];
  }
  // Three rows of two heads against plain loops in double.
  void check() {
    run();
    for (const int64_t head : {int64_t{0}, heads - 1}) {
      for (const int64_t row : {int64_t{0}, n / 2, n - 1}) {
        std::vector<double> weight(static_cast<size_t>(row + 1)), expected(static_cast<size_t>(width), 0.0);
        double total = 0;
        for (int64_t j = 0; j <= row; ++j) {
          double score = 0;
          for (int64_t e = 0; e < width; ++e) {
            score += static_cast<double>(q[static_cast<size_t>((row * heads + head) * width + e)]) *
                     k[static_cast<size_t>((head * n + j) * width + e)];
          }
          total += weight[static_cast<size_t>(j)] = std::exp(score * config.scale);
        }
        for (int64_t j = 0; j <= row; ++j) {
          for (int64_t w = 0; w < width; ++w)
            expected[static_cast<size_t>(w)] +=
                weight[static_cast<size_t>(j)] / total * v[static_cast<size_t>((head * n + j) * width + w)];
        }
        // f32: rounding of sums of at most a few thousand terms below 1. bf16: q, k, v and the weights carry 2^-9 each.
        const double tolerance = type == DType::bf16 ? 4 * 0x1p-8 : static_cast<double>(n + 64) * 0x1p-24;
        for (int64_t w = 0; w < width; ++w) {
          const double found = result(row, head * width + w);
          if (!(std::abs(found - expected[static_cast<size_t>(w)]) <= tolerance)) {
            fail(ErrorCode::numeric, "attention: head {}, row {}: {} is not {}: no timing of a wrong result", head, row,
                 found, expected[static_cast<size_t>(w)]);
          }
        }
      }
    }
  }
};

// Whole maps in memory, one head after the other.
void naive(Case& c, Buffer<float>& map) {
  const int64_t n = c.n, e = c.width, w = c.width;
  for (int64_t h = 0; h < c.heads; ++h) {
    const Matrix scores(map.data(), n, n);
    const Matrix q(c.q.data() + h * e, n, e, c.heads * e), k(c.k.data() + h * n * e, n, e),
        v(c.v.data() + h * n * w, n, w);
    ops::gemm(scores, q, k, ops::Transpose::yes);
    parallel_for(n, [&](int64_t i) {
      float* row = scores.f32(i);
      const auto seen = static_cast<size_t>(i + 1);
      simd::scale(row, c.config.scale, seen);
      const float sum = simd::exp_sum(row, simd::max(row, seen), row, seen);
      simd::scale(row, 1 / sum, seen);
      std::fill(row + seen, row + n, 0.0f);
    });
    ops::gemm(Matrix(c.out.data() + h * w, n, w, c.heads * w), scores, v, ops::Transpose::no);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of fused causal attention");
  std::vector<int64_t> lengths = {1024, 2048, 4096};
  int64_t heads = 8, width = 64;
  int thread_count = 0, repeats = 7;
  std::string json, dtype = "f32";
  app.add_option("--lengths", lengths)->delimiter(',');
  app.add_option("--heads", heads);
  app.add_option("--width", width);
  app.add_option("--dtype", dtype);
  app.add_option("--threads", thread_count);
  app.add_option("--repeats", repeats);
  app.add_option("--json", json);
  CLI11_PARSE(app, argc, argv);
  try {
    set_threads(thread_count);
    const DType type = parse_dtype(dtype);
    nlohmann::json result = {{"machine", bench::describe_machine()},
                             {"dtype", dtype},
                             {"heads", heads},
                             {"width", width},
                             {"repeats", repeats},
                             {"rows", nlohmann::json::array()}};
    std::FILE* out = json == "-" ? stderr : stdout;
    for (const int64_t n : lengths) {
      Case fused(heads, width, n, type);
      fused.check();
      bench::Ceiling ceiling(n < 512 ? 128 : 2048, type);
      Buffer<float> map(static_cast<size_t>(n * n));
      std::vector<bench::Row> rows = {{"gemm", ceiling.flops(), [&] { ceiling.run(); }, {}},
                                      {"fused", fused.flops(), [&] { fused.run(); }, {}}};
      if (type == DType::f32) rows.push_back({"maps in memory", fused.flops(), [&] { naive(fused, map); }, {}});
      bench::time_by_turns(rows, repeats);
      bench::report(rows, dtype, n, result, out);
    }
    if (json == "-") std::printf("%s\n", result.dump(1).c_str());
    if (!json.empty() && json != "-") write_text(json, result.dump(1) + "\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 1;
  }
}
