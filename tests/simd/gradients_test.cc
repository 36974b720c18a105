// The kernels of training: that they take any length and alignment, touch nothing outside, and do not depend on either.
// Their accuracy is tested, on every instruction set, by tests/ops/{rms_norm,gated,adamw}_test.cc.
#include "simd/gradients.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

constexpr size_t kMargin = 20;
constexpr float kGuard = 12345;

// n numbers, `shift` elements off alignment, with guards around them.
template <class T>
struct Guarded {
  size_t n, begin;
  std::vector<T> data;

  Guarded(const std::vector<float>& values, size_t shift) : n(values.size()), begin(kMargin + shift) {
    for (size_t i = 0; i < n + 2 * kMargin + 4; ++i) {
      const float x = i >= begin && i < begin + n ? values[i - begin] : kGuard;
      if constexpr (sizeof(T) == 2) {
        data.push_back(to_bf16(x));
      } else {
        data.push_back(x);
      }
    }
  }
  T* at() { return data.data() + begin; }
  std::vector<T> values() const {
    return {data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(begin + n)};
  }
  bool intact() const {
    for (size_t i = 0; i < data.size(); ++i) {
      const bool inside = i >= begin && i < begin + n;
      if (!inside && to_double(data[i]) != to_double(Guarded({}, 0).data[0])) return false;
    }
    return true;
  }
};

// Runs kernel(a, b, inputs…) on every length, alignment and instruction set; a and b are what it writes, beginning as
// random numbers. The results must be those of an aligned run.
template <class Out>
void expect_in_place(const std::function<void(Out*, Out*, const float*, const float*, const float*, size_t)>& kernel) {
  on_every_target([&] {
    for (size_t n = 0; n <= 67; ++n) {
      std::vector<Out> first_a, first_b;
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
        SCOPED_TRACE(testing::Message() << "n " << n << ", shift " << shift);
        Guarded<Out> a(random_floats(n, 1), shift), b(random_floats(n, 2), (shift + 1) % 4);
        Guarded<float> x(random_floats(n, 3), shift), y(random_floats(n, 4), 2), z(random_floats(n, 5), shift);
        kernel(a.at(), b.at(), x.at(), y.at(), z.at(), n);
        EXPECT_TRUE(a.intact() && b.intact() && x.intact() && y.intact() && z.intact());
        if (shift == 0) {
          first_a = a.values();
          first_b = b.values();
        }
        const std::vector<Out> again_a = a.values(), again_b = b.values();
        EXPECT_TRUE(same_bits(again_a, first_a));
        EXPECT_TRUE(same_bits(again_b, first_b));
      }
    }
  });
}

TEST(SimdGradients, RmsNorm) {
  for (const bool weighted : {false, true}) {
    expect_in_place<float>([&](float* a, float* b, const float* x, const float* y, const float* z, size_t n) {
      simd::rms_norm_backward_row(a, b, x, y, weighted ? z : nullptr, 1.25f, n);
    });
  }
}

TEST(SimdGradients, Gates) {
  expect_in_place<float>([](auto* a, auto* b, const float* x, const float* y, const float* z, size_t n) {
    simd::silu_backward(a, b, x, y, z, n);
  });
  expect_in_place<bf16>([](auto* a, auto* b, const float* x, const float* y, const float* z, size_t n) {
    simd::silu_backward(a, b, x, y, z, n);
  });
  expect_in_place<float>([](auto* a, auto* b, const float* x, const float* y, const float* z, size_t n) {
    simd::gelu_tanh_backward(a, b, x, y, z, n);
  });
  expect_in_place<bf16>([](auto* a, auto* b, const float* x, const float* y, const float* z, size_t n) {
    simd::gelu_tanh_backward(a, b, x, y, z, n);
  });
}

TEST(SimdGradients, AdamW) {
  const simd::AdamWStep step{1, 0.9f, 0.1f, 0.9f, 0.1f, 0.01f, 1, 1e-8f, 0.99f};
  expect_in_place<float>([&](float* a, float* b, const float* x, const float* y, const float*, size_t n) {
    std::vector<float> v(y, y + n);
    for (float& value : v) value *= value;  // second moments are positive
    simd::adamw(a, b, v.data(), nullptr, x, step, n);
  });
  expect_in_place<bf16>([&](bf16* a, bf16*, const float* x, const float* y, const float* z, size_t n) {
    std::vector<float> value(x, x + n), m(y, y + n), v(n);
    simd::adamw(value.data(), m.data(), v.data(), a, z, step, n);
  });
}

TEST(SimdGradients, SumOfSquaresIsInDouble) {
  on_every_target([] {
    for (size_t n = 0; n <= 67; ++n) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
        Guarded<float> x(random_floats(n, n, 1e22), shift);  // squares beyond f32
        double expected = 0;
        for (const float value : x.values()) expected += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_NEAR(simd::sum_squares_f64(x.at(), n), expected, 2 * static_cast<double>(n) * 0x1p-53 * expected);
      }
    }
  });
}

}  // namespace
}  // namespace unchain::test
