// Matrix products against plain loops in double. Any order of summing K products is off by at most K·ε·Σ|a b|, ε = 2⁻²⁴
// (each product takes part in at most K roundings); a bf16 result adds one rounding of ε₈ = 2⁻⁸.
#include "ops/gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/matmul.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using ops::Store;
using ops::Transpose;

struct Sizes {
  int64_t m, n, k;
};

constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 5, 3},    {3, 1, 7},    {5, 7, 2},     {16, 16, 16},
                            {17, 33, 9}, {64, 65, 63}, {2, 97, 130}, {130, 48, 96}, {63, 127, 200}};

// Rows of `cols` numbers, `gap` further ones between rows, in a matrix of T.
template <class T>
struct Rows {
  std::vector<T> data;
  Matrix view;

  Rows(const std::vector<float>& values, int64_t rows, int64_t cols, int64_t gap)
      : data(static_cast<size_t>(rows * (cols + gap)), convert(-77.0f)) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        data[static_cast<size_t>(i * (cols + gap) + j)] = convert(values[static_cast<size_t>(i * cols + j)]);
      }
    }
    view = Matrix(data.data(), rows, cols, cols + gap);
  }
  static T convert(float x) {
    if constexpr (std::is_same_v<T, float>) {
      return x;
    } else {
      return to_bf16(x);
    }
  }
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j)
        result.push_back(to_double(data[static_cast<size_t>(i * view.stride + j)]));
    }
    return result;
  }
  bool gaps_kept() const {
    for (size_t i = 0; i < data.size(); ++i) {
      if (static_cast<int64_t>(i) % view.stride >= view.cols && to_double(data[i]) != -77) return false;
    }
    return true;
  }
};

// Between the rows of each matrix.
struct Gaps {
  int64_t a, b, c;
};

// Both inputs by rows: [M, K] and [K, N] of the product, or their transposes.
struct Form {
  Transpose a, b;
};
void multiply(const Matrix& c, const Matrix& a, const Matrix& b, const Form& form, Store store) {
  form.a == Transpose::yes ? ops::gemm_transposed(c, a, b, store) : ops::gemm(c, a, b, form.b, store);
}

template <class In, class Out>
void expect_product(const Sizes& s, const Form& form, Store store, const Gaps& gap) {
  SCOPED_TRACE(testing::Message() << "[" << s.m << ", " << s.n << ", " << s.k << "] transposed "
                                  << (form.a == Transpose::yes) << (form.b == Transpose::yes) << " accumulate "
                                  << (store == Store::accumulate) << " gaps " << gap.a << gap.b << gap.c);
  const bool turned = form.b == Transpose::yes, turned_a = form.a == Transpose::yes;
  const Rows<In> a(random_floats(static_cast<size_t>(s.m * s.k), 1), turned_a ? s.k : s.m, turned_a ? s.m : s.k, gap.a);
  const Rows<In> b(random_floats(static_cast<size_t>(s.n * s.k), 2), turned ? s.n : s.k, turned ? s.k : s.n, gap.b);
  const Rows<Out> c(random_floats(static_cast<size_t>(s.m * s.n), 3), s.m, s.n, gap.c);
  const std::vector<double> before = c.values();
  std::vector<double> size_a = turned_a ? ref::transposed(a.values(), s.k, s.m) : a.values(), size_b = b.values();
  std::vector<double> expected = ref::matmul(size_a, size_b, s.m, s.n, s.k, turned);
  for (double& x : size_a) x = std::abs(x);
  for (double& x : size_b) x = std::abs(x);
  std::vector<double> tolerance = ref::matmul(size_a, size_b, s.m, s.n, s.k, turned);
  for (size_t i = 0; i < tolerance.size(); ++i) {
    const double added = store == Store::accumulate ? before[i] : 0;
    expected[i] += added;
    tolerance[i] = static_cast<double>(s.k + 1) * kEpsF32 * (tolerance[i] + std::abs(added));
    if (sizeof(Out) == 2) tolerance[i] += kEpsBf16 * (std::abs(expected[i]) + tolerance[i]);
  }
  multiply(c.view, a.view, b.view, form, store);
  EXPECT_TRUE(close_each(c.values(), expected, tolerance));
  EXPECT_TRUE(c.gaps_kept()) << "wrote between the rows";
}

template <class In, class Out>
void expect_products() {
  for (const Sizes& s : kSizes) {
    for (const Form& form :
         {Form{Transpose::no, Transpose::no}, {Transpose::no, Transpose::yes}, {Transpose::yes, Transpose::no}}) {
      for (const Store store : {Store::overwrite, Store::accumulate}) {
        // One after the other, so that a product that was kept for other gaps would show.
        for (const Gaps& gap : {Gaps{0, 0, 0}, {3, 0, 0}, {0, 3, 0}, {0, 0, 3}, {1, 2, 3}}) {
          expect_product<In, Out>(s, form, store, gap);
        }
      }
    }
  }
}

TEST(Gemm, F32) {
  for (const int count : {1, 2}) {
    set_threads(count);
    expect_products<float, float>();
  }
  set_threads(0);
}

TEST(Gemm, Bf16) {
  for (const int count : {1, 2}) {
    set_threads(count);
    expect_products<bf16, float>();
    expect_products<bf16, bf16>();
  }
  set_threads(0);
}

TEST(Gemm, TransposedProductsHaveTheSameBitsEachTime) {
  // Long sums, which the library may split between threads.
  constexpr int64_t kM = 96, kN = 64, kK = 5000;
  auto a = random_floats(kM * kK, 1), b = random_floats(kN * kK, 2);
  for (const int count : {1, 2}) {
    set_threads(count);
    std::vector<float> first;
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<float> c(kM * kN, 1);
      ops::gemm_transposed(Matrix(c.data(), kM, kN), Matrix(a.data(), kK, kM), Matrix(b.data(), kK, kN),
                           Store::accumulate);
      if (first.empty())
        first = c;
      else
        EXPECT_TRUE(same_bits(c, first));
    }
  }
  set_threads(0);
}

TEST(Gemm, InsideAParallelRegion) {
  constexpr int64_t kM = 40, kN = 30, kK = 50;
  set_threads(2);
  const auto a = random_floats(kM * kK, 1), b = random_floats(kN * kK, 2);
  std::vector<float> outside(kM * kN);
  const auto product = [&](std::vector<float>& c) {
    ops::gemm(Matrix(c.data(), kM, kN), Matrix(const_cast<float*>(a.data()), kM, kK),
              Matrix(const_cast<float*>(b.data()), kN, kK), Transpose::yes);
  };
  product(outside);
  std::vector<std::vector<float>> inside(20, std::vector<float>(kM * kN));
  parallel_for(20, [&](int64_t i) { product(inside[static_cast<size_t>(i)]); });
  for (const auto& c : inside) EXPECT_TRUE(close(c, widen(outside), 2 * kK * kEpsF32 * 20));
  set_threads(0);
}

TEST(Gemm, EmptyResultsAreFine) {
  float x = 1;
  ops::gemm(Matrix(&x, 0, 4), Matrix(&x, 0, 3), Matrix(&x, 4, 3), Transpose::yes);
  ops::gemm(Matrix(&x, 4, 0), Matrix(&x, 4, 3), Matrix(&x, 3, 0), Transpose::no);
  ops::gemm_transposed(Matrix(&x, 0, 4), Matrix(&x, 3, 0), Matrix(&x, 3, 4));
  EXPECT_EQ(x, 1);
  // A sum of no products is zero, and adds nothing.
  ops::gemm_transposed(Matrix(&x, 1, 1), Matrix(&x, 0, 1), Matrix(&x, 0, 1), Store::accumulate);
  EXPECT_EQ(x, 1);
  ops::gemm_transposed(Matrix(&x, 1, 1), Matrix(&x, 0, 1), Matrix(&x, 0, 1));
  EXPECT_EQ(x, 0);
}

TEST(Gemm, SizesThatDoNotFit) {
  std::vector<float> x(100);
  std::vector<bf16> y(100);
  const auto call = [&](const Matrix& c, const Matrix& a, const Matrix& b, Transpose t) {
    return [=] { ops::gemm(c, a, b, t); };
  };
  const Matrix f(x.data(), 4, 5), g(x.data(), 5, 6), h(x.data(), 4, 6);
  expect_error(call(h, f, f, Transpose::no), ErrorCode::shape, {"[4, 5] x [4, 5] into [4, 6]"});
  expect_error(call(f, f, g, Transpose::no), ErrorCode::shape, {"matrix product"});
  expect_error(call(h, f, g, Transpose::yes), ErrorCode::shape, {"matrix product"});
  expect_error(call(h, f, Matrix(y.data(), 5, 6), Transpose::no), ErrorCode::shape, {"matrix product"});
  expect_error([&] { ops::gemm_transposed(h, f, g); }, ErrorCode::shape, {"[4, 5]ᵀ x [5, 6] into [4, 6]"});
  expect_error([&] { ops::gemm_transposed(f, h, f); }, ErrorCode::shape, {"matrix product"});
}

TEST(Gemm, SaysWhatItRunsOn) {
  EXPECT_NE(ops::gemm_backend().find("oneDNN"), std::string::npos);
  EXPECT_EQ(ops::gemm_backend().find("unknown"), std::string::npos);
}

}  // namespace
}  // namespace unchain::test
