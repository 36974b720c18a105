// Speed of the attention family's kernels, forward and with backward, beside softmax and the matrix-product rate of the
// same run. Operations counted, the least that causal maps need, for each output head: N²/2·(E·maps + W) multiply-adds
// forward, N²/2·(E·3·maps + 2W) backward (scores are not counted twice).
//   family_bench [--lengths 1024,2048,4096] [--heads 8] [--width 64] [--dtype f32|bf16] [--threads 0] [--repeats 5]
//   [--json FILE|-]
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/file.h"
#include "base/rng.h"
#include "bench.h"
#include "model/member.h"

namespace {

using namespace unchain;
using attention::HeadRows;

struct Case {
  std::string name;
  model::Member member;
  int64_t n, heads;
  DType type;
  Buffer<float> q, k, v, out, lambda, log_sums, content, scores, keep, alpha, states, prototypes;
  Buffer<float> d_out, d_q, d_k, d_v, d_lambda, d_alpha, d_scores;
  Buffer<bf16> k_narrow, v_narrow;
  std::vector<float> logits;
  attention::SignedWorkspace workspace;
  attention::StateWorkspace state_workspace;

  // `pairs`: of diff_v1, twice the query and key heads, values twice as wide, as many outputs as the others have.
  Case(const std::string& preset, int64_t head_count, int64_t width, int64_t length, DType dtype)
      : name(preset), n(length), heads(head_count), type(dtype) {
    model::Config config;
    config.heads = config.kv_heads = preset == "diff_v1" ? 2 * heads : heads;
    config.head_dim = width;
    config.attention_scale = 1 / std::sqrt(static_cast<float>(width));
    config.layers.resize(1);
    config.attention = attention::preset(preset);
    member = model::make_member(config, 0);
    const attention::AttentionShape& shape = member.shape;
    const int64_t rank = std::max<int64_t>(member.family.state_rank(), 1);
    Rng rng(1);
    const auto fill = [&](Buffer<float>& buffer, int64_t numbers) {
      buffer = Buffer<float>(static_cast<size_t>(numbers));
      for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<float>(rng.uniform() * 2 - 1);
    };
    for (Buffer<float>* buffer : {&q, &d_q}) fill(*buffer, n * shape.layout.query_heads * width);
    for (Buffer<float>* buffer : {&k, &d_k, &content}) fill(*buffer, n * shape.layout.key_heads * width);
    for (Buffer<float>* buffer : {&v, &d_v}) fill(*buffer, n * shape.value_width);
    for (Buffer<float>* buffer : {&out, &d_out}) fill(*buffer, n * shape.output_width());
    for (Buffer<float>* buffer : {&lambda, &d_lambda}) fill(*buffer, n * heads);
    for (Buffer<float>* buffer : {&scores, &keep, &alpha, &d_alpha, &d_scores}) fill(*buffer, n * heads * rank);
    fill(log_sums, 2 * n * heads);
    fill(states, (n / 32 + 1) * heads * rank * shape.value_dim);
    fill(prototypes, heads * rank * width);
    logits.assign(static_cast<size_t>(heads * rank), 0.0f);
    member.weights.prototypes = prototypes.data();
    member.weights.basis = logits.data();
    k_narrow = Buffer<bf16>(k.size());
    v_narrow = Buffer<bf16>(v.size());
    simd::convert(k.data(), k_narrow.data(), k.size());
    simd::convert(v.data(), v_narrow.data(), v.size());
  }
  bool own_gates() const { return member.family.has_own_gates(); }
  HeadRows rows(Buffer<float>& buffer, int64_t count) const {
    return HeadRows::side_by_side(Matrix(buffer.data(), n, static_cast<int64_t>(buffer.size()) / n), count);
  }
  HeadRows rows(Buffer<bf16>& buffer, int64_t count) const {
    return HeadRows::side_by_side(Matrix(buffer.data(), n, static_cast<int64_t>(buffer.size()) / n), count);
  }
  attention::SignedInputs inputs() {
    const attention::Layout& layout = member.shape.layout;
    attention::SignedInputs in;
    in.q = rows(q, layout.query_heads);
    in.k = type == DType::bf16 ? rows(k_narrow, layout.key_heads) : rows(k, layout.key_heads);
    in.v = type == DType::bf16 ? rows(v_narrow, layout.value_heads) : rows(v, layout.value_heads);
    in.rows = in.key_rows = n;
    in.lambda = lambda.data();
    return in;
  }
  attention::StateNoise noise() {
    const int64_t rank = member.family.state_rank(), stride = own_gates() ? heads * rank : rank;
    const int64_t head_stride = own_gates() ? rank : 0;
    return {rank,
            {scores.data(), stride, head_stride},
            {keep.data(), stride, head_stride},
            {alpha.data(), own_gates() ? stride : 0, rank}};
  }
  void forward(bool keep_for_backward) {
    const attention::SignedInputs in = inputs();
    const HeadRows to = rows(out, heads);
    const attention::SignedSaved saved{keep_for_backward ? log_sums.data() : nullptr};
    signed_softmax_forward(to, saved, in, member.kernel, workspace);
    if (!member.family.has_state()) return;
    const attention::StateNoise state = noise();
    if (own_gates()) {
      model::member_scores(Matrix(scores.data(), n, heads * state.rank),
                           Matrix(content.data(), n, static_cast<int64_t>(content.size()) / n), member);
      prototype_gates(state.take, state.keep, state.take, nullptr, in, heads, state.rank);
    } else {
      fixed_gates(state.take, state.keep, member.family.decays, in);
      model::member_shares(Matrix(alpha.data(), heads, state.rank), {}, member);
    }
    state_noise_forward(to, nullptr, keep_for_backward ? states.data() : nullptr, state, in, member.shape.layout,
                        state_workspace);
  }
  void both() {
    forward(true);
    const attention::Layout& layout = member.shape.layout;
    const attention::SignedInputs in = inputs();
    attention::SignedGradients g;
    g.d_q = rows(d_q, layout.query_heads);
    g.d_k = rows(d_k, layout.key_heads);
    g.d_v = rows(d_v, layout.value_heads);
    g.d_lambda = d_lambda.data();
    signed_softmax_backward(g, rows(d_out, heads), {log_sums.data()}, in, member.kernel, workspace);
    if (!member.family.has_state()) return;
    const int64_t rank = member.family.state_rank();
    state_noise_backward(
        {g.d_v, d_lambda.data(), {d_alpha.data(), heads * rank, rank}, {d_scores.data(), heads * rank, rank}},
        rows(d_out, heads), states.data(), noise(), in, layout, state_workspace);
  }
  double flops(bool backward) const {
    const double maps = member.family.has_second_map() ? 2 : 1, wide = static_cast<double>(member.shape.value_dim);
    const double e = static_cast<double>(member.shape.head_dim), length = static_cast<double>(n);
    const double each = e * maps + wide + (backward ? 2 * e * maps + 2 * wide : 0);
    return static_cast<double>(heads) * length * length * each;
  }
  // Both forms of each state are held against each other in tests/attention; here a few rows of the softmax maps.
  void check() {
    if (member.family.has_state()) return;
    forward(false);
    const attention::HeadPair pair = member.shape.layout.outputs.front();
    const int64_t e = member.shape.head_dim, w = member.shape.value_dim;
    for (const int64_t row : {int64_t{0}, n / 2, n - 1}) {
      std::vector<double> expected(static_cast<size_t>(w), 0.0);
      const auto add = [&](int q_head, int k_head, double factor) {
        std::vector<double> weight;
        double total = 0;
        for (int64_t j = 0; j <= row; ++j) {
          double score = 0;
          for (int64_t i = 0; i < e; ++i) {
            score +=
                static_cast<double>(q[static_cast<size_t>((row * member.shape.layout.query_heads + q_head) * e + i)]) *
                k[static_cast<size_t>((j * member.shape.layout.key_heads + k_head) * e + i)];
          }
          weight.push_back(std::exp(score * member.kernel.scale));
          total += weight.back();
        }
        for (int64_t j = 0; j <= row; ++j) {
          for (int64_t i = 0; i < w; ++i) {
            expected[static_cast<size_t>(i)] +=
                factor * weight[static_cast<size_t>(j)] / total *
                v[static_cast<size_t>((j * member.shape.layout.value_heads + pair.v) * w + i)];
          }
        }
      };
      add(pair.q1, pair.k1, 1);
      if (pair.q2 >= 0) add(pair.q2, pair.k2, -static_cast<double>(lambda[static_cast<size_t>(row * heads)]));
      // f32: sums of a few thousand terms below 1. bf16: q, k, v and the weights carry 2⁻⁹ each.
      const double tolerance = type == DType::bf16 ? 8 * 0x1p-8 : 2 * static_cast<double>(n + 64) * 0x1p-24;
      for (int64_t i = 0; i < w; ++i) {
        const double found = out[static_cast<size_t>(row * heads * w + i)];
        if (!(std::abs(found - expected[static_cast<size_t>(i)]) <= tolerance)) {
          fail(ErrorCode::numeric, "{}: row {}: {} is not {}: no timing of a wrong result", name, row, found,
               expected[static_cast<size_t>(i)]);
        }
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of the attention family");
  std::vector<int64_t> lengths = {1024, 2048, 4096};
  std::vector<std::string> members = {"softmax", "diff_v1", "diff_v2", "lowrank_diff", "fixed_diff"};
  int64_t heads = 8, width = 64;
  int thread_count = 0, repeats = 5;
  std::string json, dtype = "f32";
  app.add_option("--lengths", lengths)->delimiter(',');
  app.add_option("--members", members)->delimiter(',');
  app.add_option("--heads", heads, "outputs");
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
      std::vector<std::unique_ptr<Case>> cases;
      bench::Ceiling ceiling(n < 512 ? 128 : 2048, type);
      std::vector<bench::Row> rows = {{"gemm", ceiling.flops(), [&] { ceiling.run(); }, {}}};
      for (const std::string& name : members) {
        cases.push_back(std::make_unique<Case>(name, heads, width, n, type));
        Case* c = cases.back().get();
        c->check();
        rows.push_back({name + " forward", c->flops(false), [c] { c->forward(false); }, {}});
        rows.push_back({name + " both", c->flops(true), [c] { c->both(); }, {}});
      }
      bench::time_by_turns(rows, repeats);
      bench::report(rows, dtype, n, result, out);
    }
    if (json == "-") std::printf("%s\n", result.dump(1).c_str());
    if (!json.empty() && json != "-") write_text(json, result.dump(1) + "\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "family_bench: %s\n", error.what());
    return 1;
  }
}
