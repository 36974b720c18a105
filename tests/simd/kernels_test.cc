// Every vector kernel on every instruction set of the machine against plain loops in double: all lengths up to a few
// vectors of the widest kind and beyond the unrolled loops, misaligned arrays, zeros, large and negative values.
// ε = 2⁻²⁴ is the largest relative error of an f32 rounding, ε₈ = 2⁻⁸ that of a bf16 one. A sum of n numbers in L lanes
// adds n/L times in each lane and log₂ L + 2 times at the end: error ≤ (n/L + log₂ L + 2)·ε·Σ|x|.
#include "simd/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ref/gated.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One case: n numbers that begin `shift` elements behind an aligned place, followed by guards that must not change.
struct Case {
  size_t n, shift;
  double scale;
};

template <class Body>
void on_every_case(const Body& body) {
  std::vector<size_t> lengths = {73, 95, 128, 131, 257, 1000};
  for (size_t n = 0; n <= 67; ++n) lengths.push_back(n);
  on_every_target([&] {
    for (const size_t n : lengths) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
        for (const double scale : {0.0, 1.0, 1e15}) {
          SCOPED_TRACE(testing::Message() << "n " << n << ", shift " << shift << ", scale " << scale);
          body(Case{n, shift, scale});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

// An array in memory that is `shift` elements off alignment, with a guard before and behind.
template <class T>
class Array {
 public:
  Array(const std::vector<T>& values, size_t shift) : n_(values.size()), begin_(16 + shift), data_(n_ + 64, guard()) {
    std::copy(values.begin(), values.end(), data_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }
  T* data() { return data_.data() + begin_; }
  std::vector<T> values() const {
    const auto begin = data_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {begin, begin + static_cast<std::ptrdiff_t>(n_)};
  }
  bool guards_kept() const {
    for (size_t i = 0; i < data_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + n_) && to_double(data_[i]) != to_double(guard())) return false;
    }
    return true;
  }

 private:
  static T guard() {
    if constexpr (std::is_same_v<T, float>) {
      return 12345.0f;
    } else {
      return to_bf16(12345.0f);
    }
  }
  size_t n_, begin_;
  std::vector<T> data_;
};

// Runs kernel(out) into an f32 and a bf16 array; entry i may be off by relative·|expected_i| + absolute[i]·ε, and for
// bf16 by one more rounding.
template <class Kernel>
void expect_both_types(const Case& c, const std::vector<double>& expected, double relative,
                       const std::vector<double>& magnitude, const Kernel& kernel, double extra_bf16 = 0) {
  std::vector<double> tolerance(c.n), tolerance_bf16(c.n);
  for (size_t i = 0; i < c.n; ++i) {
    tolerance[i] = relative * magnitude[i];
    const double inexact = tolerance[i] + extra_bf16 * std::abs(expected[i]);
    tolerance_bf16[i] = inexact + kEpsBf16 * (std::abs(expected[i]) + inexact);
  }
  Array<float> out(std::vector<float>(c.n), c.shift);
  kernel(out.data());
  EXPECT_TRUE(close_each(out.values(), expected, tolerance));
  EXPECT_TRUE(out.guards_kept());
  Array<bf16> narrow(std::vector<bf16>(c.n), c.shift);
  kernel(narrow.data());
  EXPECT_TRUE(close_each(narrow.values(), expected, tolerance_bf16));
  EXPECT_TRUE(narrow.guards_kept());
}

std::vector<double> magnitudes(const std::vector<double>& values) {
  std::vector<double> result;
  for (const double x : values) result.push_back(std::abs(x));
  return result;
}

TEST(Simd, Max) {
  on_every_case([](const Case& c) {
    std::vector<float> values = random_floats(c.n, c.n, c.scale);
    for (float& x : values) x -= static_cast<float>(10 * c.scale);  // all negative: a zero from padding would win
    Array<float> x(values, c.shift);
    const float expected = c.n ? *std::max_element(values.begin(), values.end()) : -kInf;
    EXPECT_EQ(simd::max(x.data(), c.n), expected);
    if (c.n == 0) return;
    // The largest at every place in turn, among −∞.
    for (const size_t at : {size_t{0}, c.n / 2, c.n - 1}) {
      std::vector<float> sparse(c.n, -kInf);
      sparse[at] = -7;
      Array<float> y(sparse, c.shift);
      EXPECT_EQ(simd::max(y.data(), c.n), -7) << at;
    }
  });
}

TEST(Simd, SumAndDot) {
  on_every_case([](const Case& c) {
    const auto xs = random_floats(c.n, 1 + c.n, c.scale), ys = random_floats(c.n, 1000 + c.n);
    const auto xs16 = to_bf16s(xs);
    Array<float> x(xs, c.shift), y(ys, (c.shift + 1) % 4);
    Array<bf16> x16(xs16, c.shift);
    double sum = 0, size = 0, dot = 0, dot_size = 0, dot16 = 0, squares = 0;
    for (size_t i = 0; i < c.n; ++i) {
      const double a = static_cast<double>(xs[i]), b = static_cast<double>(ys[i]);
      sum += a;
      size += std::abs(a);
      dot += a * b;
      dot_size += std::abs(a * b);
      dot16 += to_double(xs16[i]) * b;
      squares += a * a;
    }
    const double n = static_cast<double>(c.n);
    // kernels.h: sums run in at least 8 lanes (two vectors of four), dots in at least 16, products rounded once more.
    EXPECT_NEAR(static_cast<double>(simd::sum(x.data(), c.n)), sum, (n / 8 + 5) * kEpsF32 * size);
    const double dot_tolerance = (n / 16 + 7) * kEpsF32;
    EXPECT_NEAR(static_cast<double>(simd::dot(x.data(), y.data(), c.n)), dot, dot_tolerance * dot_size);
    EXPECT_NEAR(static_cast<double>(simd::dot(x16.data(), y.data(), c.n)), dot16,
                dot_tolerance * (1 + kEpsBf16) * dot_size);
    EXPECT_NEAR(static_cast<double>(simd::sum_squares(x.data(), c.n)), squares, dot_tolerance * squares);
  });
}

TEST(Simd, ExpSum) {
  on_every_case([](const Case& c) {
    if (c.scale > 1) return;
    const float offset = 3;
    std::vector<float> xs = random_floats(c.n, c.n, 20 * c.scale);
    for (float& x : xs) x = std::min(x, offset);
    if (c.n > 2) xs[c.n - 2] = -kInf;
    if (c.n > 5) xs[3] = -200;
    Array<float> x(xs, c.shift);
    std::vector<double> expected(c.n);
    for (size_t i = 0; i < c.n; ++i) expected[i] = std::exp(static_cast<double>(xs[i] - offset));
    // Relative errors as documented; entries below 2⁻¹²⁶ are 0.
    std::vector<double> tolerance(c.n), tolerance_quick(c.n), tolerance_bf16(c.n);
    for (size_t i = 0; i < c.n; ++i) {
      tolerance[i] = 4e-7 * expected[i] + 0x1p-126;
      tolerance_quick[i] = 1e-5 * expected[i] + 0x1p-126;
      tolerance_bf16[i] = (1e-5 + kEpsBf16 * (1 + 1e-5)) * expected[i] + 0x1p-126;
    }
    Array<float> out(std::vector<float>(c.n), c.shift);
    const double sum = static_cast<double>(simd::exp_sum(x.data(), offset, out.data(), c.n));
    EXPECT_TRUE(close_each(out.values(), expected, tolerance));
    EXPECT_TRUE(out.guards_kept());
    Array<bf16> narrow(std::vector<bf16>(c.n), c.shift);
    const double narrow_sum = static_cast<double>(simd::exp_sum(x.data(), offset, narrow.data(), c.n));
    EXPECT_TRUE(close_each(narrow.values(), expected, tolerance_bf16));
    EXPECT_TRUE(narrow.guards_kept());
    Array<float> quick(std::vector<float>(c.n), c.shift);
    const double quick_sum = static_cast<double>(simd::exp_sum_quick(x.data(), offset, quick.data(), c.n));
    EXPECT_TRUE(close_each(quick.values(), expected, tolerance_quick));
    EXPECT_TRUE(quick.guards_kept());
    // The sums are those of what was stored.
    double stored = 0, quick_stored = 0, narrow_stored = 0;
    for (const float e : quick.values()) quick_stored += static_cast<double>(e);
    for (const float e : out.values()) stored += static_cast<double>(e);
    for (const bf16 e : narrow.values()) narrow_stored += to_double(e);
    const double relative = (static_cast<double>(c.n) / 8 + 5) * kEpsF32;
    EXPECT_NEAR(sum, stored, relative * stored);
    EXPECT_NEAR(quick_sum, quick_stored, relative * quick_stored);
    EXPECT_NEAR(narrow_sum, narrow_stored, relative * narrow_stored);
    // In place.
    simd::exp_sum(x.data(), offset, x.data(), c.n);
    EXPECT_TRUE(same_bits(x.values(), out.values()));
    for (size_t i = 0; i < c.n; ++i) {
      if (xs[i] - offset < -87.4f) {
        EXPECT_EQ(out.values()[i], 0);
        EXPECT_EQ(quick.values()[i], 0);
      }
    }
  });
}

TEST(Simd, ExpIsAsExactAsItSays) {
  on_every_target([] {
    std::vector<float> x, out;
    for (int i = 0; i <= 400000; ++i) x.push_back(static_cast<float>(-87.0 * i / 400000));
    out.resize(x.size());
    simd::exp_sum(x.data(), 0, out.data(), x.size());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs(static_cast<double>(out[i]) / expected - 1));
    }
    EXPECT_LT(worst, 4e-7);
    EXPECT_EQ(out[0], 1) << "e^0 is exact, so that the largest score weighs 1";
    // bf16 entries: what rounding makes of some value within 1e-5 of the exact one.
    std::vector<bf16> narrow(x.size());
    simd::exp_sum(x.data(), 0, narrow.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      ASSERT_GE(narrow[i].bits, to_bf16(static_cast<float>(expected * (1 - 1e-5))).bits) << x[i];
      ASSERT_LE(narrow[i].bits, to_bf16(static_cast<float>(expected * (1 + 1e-5))).bits) << x[i];
    }
    testing::Test::RecordProperty("exp_relative_error", std::to_string(worst));
  });
}

TEST(Simd, ExpSumHidesNothing) {
  on_every_target([] {
    for (const float bad : {kNaN, -kNaN, kInf}) {
      for (const size_t n : {1u, 5u, 16u, 33u, 100u}) {
        for (const size_t at : {size_t{0}, n / 2, n - 1}) {
          std::vector<float> x = random_floats(n, n);
          x[at] = bad;
          // What softmax does: the offset is the maximum, so an infinity becomes ∞ − ∞.
          const float offset = bad == kInf ? kInf : 4;
          std::vector<float> out(n);
          std::vector<bf16> narrow(n);
          EXPECT_TRUE(std::isnan(simd::exp_sum(x.data(), offset, out.data(), n))) << bad << " at " << at << " of " << n;
          EXPECT_TRUE(std::isnan(simd::exp_sum_quick(x.data(), offset, out.data(), n))) << bad << " at " << at;
          EXPECT_TRUE(std::isnan(simd::exp_sum(x.data(), offset, narrow.data(), n))) << bad << " at " << at;
          EXPECT_TRUE(std::isnan(out[at]));
          EXPECT_TRUE(std::isnan(to_f32(narrow[at])));
        }
      }
    }
  });
}

TEST(Simd, ElementByElement) {
  on_every_case([](const Case& c) {
    const auto xs = random_floats(c.n, 1 + c.n, c.scale), ys = random_floats(c.n, 99 + c.n);
    Array<float> x(xs, c.shift), y(ys, 1);
    const float factor = -0.37f;
    const double f = static_cast<double>(factor);
    std::vector<double> product(c.n), weighted(c.n), sum(c.n), moved(c.n), moved16(c.n), size(c.n);
    for (size_t i = 0; i < c.n; ++i) {
      const double a = static_cast<double>(xs[i]), b = static_cast<double>(ys[i]);
      product[i] = a * f;
      weighted[i] = a * f * b;
      sum[i] = a + b;
      moved[i] = b + f * a;
      moved16[i] = b + f * to_double(to_bf16(xs[i]));
      size[i] = std::abs(b) + std::abs(f * a) * (1 + kEpsBf16);
    }
    // One rounding for a product or a sum, two for two products or a multiply-add without FMA.
    expect_both_types(c, product, kEpsF32, magnitudes(product),
                      [&](auto* out) { simd::scaled(x.data(), factor, out, c.n); });
    expect_both_types(c, weighted, 2.01 * kEpsF32, magnitudes(weighted),
                      [&](auto* out) { simd::scaled_by(x.data(), factor, y.data(), out, c.n); });
    std::vector<double> difference(c.n), difference_size(c.n);
    for (size_t i = 0; i < c.n; ++i) {
      difference[i] = 0.7 * static_cast<double>(xs[i]) + f * static_cast<double>(ys[i]);
      difference_size[i] = std::abs(static_cast<double>(xs[i])) + std::abs(static_cast<double>(ys[i]));
    }
    // 0.7 is rounded, a product and the sum round once each.
    expect_both_types(c, difference, 3 * kEpsF32, difference_size,
                      [&](auto* out) { simd::combination(0.7f, x.data(), factor, y.data(), out, c.n); });
    Array<float> out(xs, c.shift);
    simd::scale(out.data(), factor, c.n);
    EXPECT_TRUE(close(out.values(), product, c.scale * 10 * kEpsF32));
    EXPECT_TRUE(out.guards_kept());
    std::vector<double> tolerance(c.n), two(c.n);
    for (size_t i = 0; i < c.n; ++i) {
      tolerance[i] = kEpsF32 * std::abs(sum[i]);
      two[i] = 2.01 * kEpsF32 * size[i];
    }
    Array<float> added(ys, c.shift), axpy(ys, c.shift), axpy16(ys, c.shift);
    simd::add(added.data(), x.data(), c.n);
    EXPECT_TRUE(close_each(added.values(), sum, tolerance));
    simd::axpy(axpy.data(), factor, x.data(), c.n);
    EXPECT_TRUE(close_each(axpy.values(), moved, two));
    Array<bf16> x16(to_bf16s(xs), c.shift);
    simd::axpy(axpy16.data(), factor, x16.data(), c.n);
    EXPECT_TRUE(close_each(axpy16.values(), moved16, two));
    EXPECT_TRUE(added.guards_kept() && axpy.guards_kept() && axpy16.guards_kept());
  });
}

TEST(Simd, ConversionsRoundLikeTheScalarOnes) {
  on_every_case([](const Case& c) {
    std::vector<float> xs = random_floats(c.n, c.n, c.scale);
    // Ties both ways, the largest number, infinities, zeros, subnormals, and NaNs whose low bits are all ones.
    const float special[] = {std::bit_cast<float>(0x3f808000u),
                             std::bit_cast<float>(0x3f818000u),
                             3.4e38f,
                             kInf,
                             -kInf,
                             -0.0f,
                             0x1p-149f,
                             kNaN,
                             std::bit_cast<float>(0x7fffffffu),
                             std::bit_cast<float>(0xffffffffu),
                             std::bit_cast<float>(0x7f800001u)};
    for (size_t i = 0; i < std::size(special) && i < c.n; ++i) xs[(i * 7 + c.shift) % c.n] = special[i];
    Array<float> x(xs, c.shift);
    Array<bf16> out(std::vector<bf16>(c.n), c.shift);
    simd::convert(x.data(), out.data(), c.n);
    EXPECT_TRUE(out.guards_kept());
    const auto narrow = out.values();
    for (size_t i = 0; i < c.n; ++i) {
      if (std::isnan(xs[i])) {
        EXPECT_TRUE(std::isnan(to_f32(narrow[i]))) << std::bit_cast<uint32_t>(xs[i]);
      } else {
        EXPECT_EQ(narrow[i].bits, to_bf16(xs[i]).bits) << xs[i];
      }
    }
    Array<float> back(std::vector<float>(c.n), c.shift);
    simd::convert(out.data(), back.data(), c.n);
    EXPECT_TRUE(back.guards_kept());
    for (size_t i = 0; i < c.n; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(back.values()[i]), uint32_t{narrow[i].bits} << 16);
    }
  });
}

TEST(Simd, GatedActivations) {
  on_every_case([](const Case& c) {
    const double spread = c.scale > 1 ? 1e5 : 6 * c.scale;
    const auto gates = random_floats(c.n, 1 + c.n, spread), ups = random_floats(c.n, 99 + c.n);
    Array<float> gate(gates, c.shift), up(ups, 1);
    std::vector<double> silu(c.n), gelu(c.n), silu_size(c.n), gelu_size(c.n);
    for (size_t i = 0; i < c.n; ++i) {
      const double g = static_cast<double>(gates[i]), u = static_cast<double>(ups[i]);
      silu[i] = ref::silu(g) * u;
      gelu[i] = ref::gelu_tanh(g) * u;
      // e^−y: 4e-7 of its value; sum, quotient and product round once each: 4e-7 + 4ε < 7e-7. In gelu, y = 2√(2/π)(g +
      // 0.044715 g³) is itself rounded 5 times, which moves e^−y by |y|·5ε. Beyond |y| = 88 the true value is below
      // 1e-36·|g u|, and the clamp of the kernel gives that much.
      const double y = std::min(88.0, std::abs(1.6 * (g + 0.044715 * g * g * g)));
      silu_size[i] = std::abs(silu[i]) + 1e-30 * std::abs(g * u);
      gelu_size[i] = std::abs(gelu[i]) * (1 + y * 5 * kEpsF32 / 7e-7) + 1e-30 * std::abs(g * u);
    }
    expect_both_types(
        c, silu, 7e-7, silu_size, [&](auto* out) { simd::silu_mul(gate.data(), up.data(), out, c.n); }, 1e-5);
    expect_both_types(
        c, gelu, 7e-7, gelu_size, [&](auto* out) { simd::gelu_tanh_mul(gate.data(), up.data(), out, c.n); }, 1e-5);
  });
}

TEST(Simd, Rotations) {
  on_every_case([](const Case& c) {
    if (c.n % 2 != 0) return;
    const size_t half = c.n / 2;
    const auto xs = random_floats(c.n, 1 + c.n, c.scale), cosine = random_floats(half, 2),
               sine = random_floats(half, 3);
    for (const auto turn :
         {simd::rotate_halves, simd::rotate_neighbours, simd::unrotate_halves, simd::unrotate_neighbours}) {
      const bool neighbours = turn == simd::rotate_neighbours || turn == simd::unrotate_neighbours;
      const double sign = turn == simd::unrotate_halves || turn == simd::unrotate_neighbours ? -1 : 1;
      Array<float> x(xs, c.shift), out(std::vector<float>(c.n), c.shift), cos_array(cosine, 1), sin_array(sine, 3);
      std::vector<double> expected(c.n), tolerance(c.n);
      for (size_t i = 0; i < half; ++i) {
        const size_t a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : half + i;
        const double xa = static_cast<double>(xs[a]), xb = static_cast<double>(xs[b]);
        const double co = static_cast<double>(cosine[i]), si = sign * static_cast<double>(sine[i]);
        expected[a] = xa * co - xb * si;
        expected[b] = xa * si + xb * co;
        // Two products and a sum, one rounding each.
        tolerance[a] = 2.01 * kEpsF32 * (std::abs(xa * co) + std::abs(xb * si));
        tolerance[b] = 2.01 * kEpsF32 * (std::abs(xa * si) + std::abs(xb * co));
      }
      turn(x.data(), cos_array.data(), sin_array.data(), out.data(), c.n);
      EXPECT_TRUE(close_each(out.values(), expected, tolerance));
      EXPECT_TRUE(out.guards_kept());
      turn(x.data(), cos_array.data(), sin_array.data(), x.data(), c.n);
      EXPECT_TRUE(same_bits(x.values(), out.values())) << "in place";
    }
  });
}

TEST(Simd, MatrixTimesFewVectors) {
  on_every_target([] {
    for (const size_t k : {1u, 3u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 50u, 64u, 129u, 2047u, 2048u, 2050u, 4133u}) {
      for (const size_t rows : {0u, 1u, 3u, 4u, 5u, 8u, 11u}) {
        for (size_t count = 1; count <= simd::kMaxVectors; ++count) {
          SCOPED_TRACE(testing::Message() << "k " << k << ", rows " << rows << ", vectors " << count);
          const size_t stride = k + 3, out_stride = rows + 2;
          const auto w = random_floats(rows * stride + 1, k), x = random_floats(count * k + 1, rows);
          const auto w16 = to_bf16s(w);
          std::vector<double> expected(count * out_stride, 5), expected16 = expected, tolerance(expected.size());
          for (size_t m = 0; m < count; ++m) {
            for (size_t r = 0; r < rows; ++r) {
              double sum = 0, sum16 = 0, size = 0;
              for (size_t i = 0; i < k; ++i) {
                const double xi = static_cast<double>(x[1 + m * k + i]);
                sum += static_cast<double>(w[1 + r * stride + i]) * xi;
                sum16 += to_double(w16[1 + r * stride + i]) * xi;
                size += std::abs(static_cast<double>(w[1 + r * stride + i]) * xi);
              }
              expected[m * out_stride + r] = sum;
              expected16[m * out_stride + r] = sum16;
              // One vector sum of at least 4 lanes, products rounded, sums of up to three blocks of x and their tails.
              tolerance[m * out_stride + r] = (static_cast<double>(k) / 4 + 10) * kEpsF32 * (1 + kEpsBf16) * size;
            }
          }
          std::vector<float> out(count * out_stride, 5), out16 = out;  // gaps keep their 5
          simd::matrix_vectors(w.data() + 1, stride, x.data() + 1, count, out.data(), out_stride, rows, k);
          simd::matrix_vectors(w16.data() + 1, stride, x.data() + 1, count, out16.data(), out_stride, rows, k);
          EXPECT_TRUE(close_each(out, expected, tolerance));
          EXPECT_TRUE(close_each(out16, expected16, tolerance));
        }
      }
    }
  });
}

TEST(Simd, WeightedRows) {
  on_every_target([] {
    for (const size_t width : {1u, 3u, 7u, 8u, 15u, 16u, 17u, 50u, 63u, 64u, 65u, 130u}) {
      for (const size_t rows : {0u, 1u, 2u, 5u, 33u}) {
        SCOPED_TRACE(testing::Message() << "width " << width << ", rows " << rows);
        const size_t stride = width + 5;
        const auto v = random_floats(rows * stride + 1, width), p = random_floats(rows, 3);
        const auto v16 = to_bf16s(v);
        std::vector<double> expected(width), expected16(width), tolerance(width);
        for (size_t i = 0; i < width; ++i) {
          double size = 0;
          for (size_t j = 0; j < rows; ++j) {
            const double weight = static_cast<double>(p[j]);
            expected[i] += weight * static_cast<double>(v[1 + j * stride + i]);
            expected16[i] += weight * to_double(v16[1 + j * stride + i]);
            size += std::abs(weight * static_cast<double>(v[1 + j * stride + i]));
          }
          // One addition a row and one product.
          tolerance[i] = static_cast<double>(rows + 1) * kEpsF32 * (1 + kEpsBf16) * size;
        }
        Array<float> out(std::vector<float>(width, 9), 1), out16(std::vector<float>(width, 9), 1);
        simd::weighted_rows(p.data(), v.data() + 1, stride, out.data(), rows, width);
        simd::weighted_rows(p.data(), v16.data() + 1, stride, out16.data(), rows, width);
        EXPECT_TRUE(close_each(out.values(), expected, tolerance));
        EXPECT_TRUE(close_each(out16.values(), expected16, tolerance));
        EXPECT_TRUE(out.guards_kept() && out16.guards_kept());
      }
    }
  });
}

}  // namespace
}  // namespace unchain::test
