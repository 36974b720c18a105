// What a member does around the kernels, held against the references in double.
#include "model/member.h"

#include <gtest/gtest.h>

#include "ref/lambda_rules.h"
#include "ref/projection.h"
#include "support/compare.h"
#include "support/family_model.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

// z = x·W_g sums D products: |Δz| ≤ D·ε·Σ|x W|, of which σ, whose slope is at most 1/4, keeps a quarter; its own
// exponential, sum and quotient and the product with o are four roundings more.
TEST(Member, GatesEachHeadOrEachNumber) {
  for (const auto kind : {attention::Gate::head, attention::Gate::element}) {
    model::Config c = family_config("gated");
    c.attention.gate = kind;
    model::Member member = model::make_member(c, 0);
    const int64_t rows = 5, cols = member.shape.output_width();
    const int64_t gates = kind == attention::Gate::head ? c.heads : c.heads * c.head_dim;
    const auto size = [](int64_t a, int64_t b) { return static_cast<size_t>(a * b); };
    auto x = random_floats(size(rows, c.width), 1), w = random_floats(size(gates, c.width), 2),
         o = random_floats(size(rows, cols), 3);
    member.weights.gate.weight = Matrix(w.data(), gates, c.width);
    const auto gate = ref::sigmoid_project(widen(x), widen(w), rows, gates, c.width);
    const auto expected = ref::apply_gate(widen(o), gate);
    std::vector<double> sums(gate.size()), wide, narrow;
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t width = static_cast<size_t>(c.width), t = i / static_cast<size_t>(gates),
                   g = i % static_cast<size_t>(gates);
      for (size_t j = 0; j < width; ++j)
        sums[i] += std::abs(static_cast<double>(x[t * width + j]) * static_cast<double>(w[g * width + j]));
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const double before = sums[i / (expected.size() / gate.size())] * static_cast<double>(c.width) / 4 + 4;
      wide.push_back(before * kEpsF32 * std::abs(static_cast<double>(o[i])));
      narrow.push_back(wide.back() + kEpsBf16 * (std::abs(expected[i]) + wide.back()));
    }
    std::vector<float> out(o.size());
    std::vector<bf16> out16(o.size());
    const Matrix from(o.data(), rows, cols), input(x.data(), rows, c.width);
    model::FinishSaved saved;
    finish_member(Matrix(out.data(), rows, cols), saved, from, input, member);
    EXPECT_TRUE(close_each(out, expected, wide));
    finish_member(Matrix(out16.data(), rows, cols), saved, from, input, member);
    EXPECT_TRUE(close_each(out16, expected, narrow));
  }
}

}  // namespace
}  // namespace unchain::test
