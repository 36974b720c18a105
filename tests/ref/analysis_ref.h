// Attention measures in double by plain loops over whole maps, to hold the library's against. Shares no code with src/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace unchain::ref {

using Matrix = std::vector<std::vector<double>>;  // [rows][columns]

inline Matrix zeros(size_t rows, size_t columns) {
  return Matrix(rows, std::vector<double>(columns));
}

// A turn of two columns.
struct Rotation {
  double c = 1, s = 0;

  void apply(Matrix& a, size_t p, size_t q) const {
    for (auto& row : a) {
      const double x = row[p], y = row[q];
      row[p] = c * x - s * y;
      row[q] = s * x + c * y;
    }
  }
};

// The one that makes columns p and q orthogonal; absent where they are.
inline std::optional<Rotation> orthogonalising(const Matrix& a, size_t p, size_t q) {
  double pp = 0, qq = 0, pq = 0;
  for (const auto& row : a) {
    pp += row[p] * row[p];
    qq += row[q] * row[q];
    pq += row[p] * row[q];
  }
  if (std::abs(pq) <= 1e-16 * std::sqrt(pp * qq) || pq == 0) return std::nullopt;
  const double zeta = (qq - pp) / (2 * pq);
  const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
  const double c = 1 / std::sqrt(1 + t * t);
  return Rotation{c, c * t};
}

// Singular values by one-sided Jacobi: columns are rotated until all pairs are orthogonal; their norms remain.
inline std::vector<double> jacobi_singular_values(Matrix a) {
  if (a.empty()) return {};
  if (a.size() < a[0].size()) {
    Matrix t = zeros(a[0].size(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
    }
    a = t;
  }
  const size_t n = a[0].size();
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool rotated = false;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        const std::optional<Rotation> turn = orthogonalising(a, p, q);
        if (!turn) continue;
        rotated = true;
        turn->apply(a, p, q);
      }
    }
    if (!rotated) break;
  }
  std::vector<double> sigma(n);
  for (size_t j = 0; j < n; ++j) {
    for (const auto& row : a) sigma[j] += row[j] * row[j];
    sigma[j] = std::sqrt(sigma[j]);
  }
  std::sort(sigma.rbegin(), sigma.rend());
  return sigma;
}

// entropy, entropy squared, stable, r90, r99
inline std::vector<double> ranks(const std::vector<double>& sigma) {
  double total = 0, squares = 0;
  for (double s : sigma) total += s, squares += s * s;
  if (total == 0) return {0, 0, 0, 0, 0};
  double h1 = 0, h2 = 0;
  for (double s : sigma) {
    if (s > 0) h1 -= s / total * std::log(s / total);
    if (s * s > 0) h2 -= s * s / squares * std::log(s * s / squares);
  }
  const auto fewest = [&](double share) {
    double sum = 0;
    size_t k = 0;
    while (k < sigma.size() && sum < (share - 1e-12) * squares) sum += sigma[k] * sigma[k], ++k;
    return static_cast<double>(k);
  };
  return {std::exp(h1), std::exp(h2), squares / (sigma[0] * sigma[0]), fewest(0.9), fewest(0.99)};
}

inline std::vector<double> map_ranks(const Matrix& a) {
  return ranks(jacobi_singular_values(a));
}

// The mean over rows i ≥ 1 of every row measure of map p[N][N], by name. `norms`: ‖v_j W_O‖ or empty; `tokens`: or
// empty.
inline std::map<std::string, std::optional<double>> row_measures(const Matrix& p, size_t window,
                                                                 const std::vector<double>& norms,
                                                                 const std::vector<int>& tokens) {
  std::map<std::string, std::vector<double>> rows;
  bool negative_seen = false;
  for (size_t i = 1; i < p.size(); ++i) {
    const size_t first = window > 0 && i >= window ? i - window + 1 : 0;
    const double visible = static_cast<double>(i - first + 1);
    double sum = 0, mass = 0, squares = 0, small = 0, count = 0, negative = 0, weighted = 0, positive = 0;
    std::vector<double> magnitudes;
    for (size_t j = first; j <= i; ++j) {
      const double x = p[i][j];
      sum += x;
      mass += std::abs(x);
      squares += x * x;
      small += std::abs(x) < 1.0 / (10.0 * static_cast<double>(i + 1));
      count += x < 0;
      negative += x < 0 ? -x : 0;
      positive += x > 0 ? x : 0;
      if (!norms.empty()) weighted += std::abs(x) * norms[j];
      magnitudes.push_back(std::abs(x));
    }
    negative_seen |= count > 0;
    const double x0 = first == 0 ? p[i][0] : 0;
    rows["row_sum"].push_back(sum);
    rows["row_sum_without_first"].push_back(sum - x0);
    rows["sparsity"].push_back(small / visible);
    rows["context_rms"].push_back(std::sqrt(squares));
    rows["negative_share"].push_back(count / visible);
    if (mass == 0) continue;
    double h = 0, clipped = 0;
    for (size_t j = first; j <= i; ++j) {
      const double share = std::abs(p[i][j]) / mass;
      if (share > 0) h -= share * std::log(share);
      if (p[i][j] > 0) clipped -= p[i][j] / positive * std::log(p[i][j] / positive);
    }
    rows["entropy"].push_back(h);
    if (visible > 1) rows["entropy_normalised"].push_back(h / std::log(visible));
    if (positive > 0) rows["entropy_clipped"].push_back(clipped);
    rows["sink_mass"].push_back(std::abs(x0) / mass);
    if (weighted > 0) rows["sink_mass_value_weighted"].push_back(std::abs(x0) * norms[0] / weighted);
    rows["negative_mass"].push_back(negative / mass);
    std::sort(magnitudes.rbegin(), magnitudes.rend());
    double top = 0;
    for (size_t k = 0; k < 20; ++k) {
      if (k < magnitudes.size()) top += magnitudes[k];
      if (k == 0) rows["top_mass_1"].push_back(top / mass);
      if (k == 4) rows["top_mass_5"].push_back(top / mass);
      if (k == 19) rows["top_mass_20"].push_back(top / mass);
    }
    if (tokens.empty() || i + 1 >= tokens.size()) continue;
    double key = 0;
    bool target = false;
    for (size_t j = std::max<size_t>(first, 1); j <= i; ++j) {
      if (tokens[j - 1] != tokens[i] || tokens[j] != tokens[i + 1]) continue;
      key += p[i][j];
      target = true;
    }
    if (target) rows["induction_mass"].push_back(key / mass);
  }
  std::map<std::string, std::optional<double>> means;
  for (const char* name :
       {"entropy", "entropy_normalised", "entropy_clipped", "row_sum", "sink_mass", "sink_mass_value_weighted",
        "row_sum_without_first", "top_mass_1", "top_mass_5", "top_mass_20", "sparsity", "context_rms", "negative_share",
        "negative_mass", "induction_mass"}) {
    means[name];
    if (rows[name].empty() || (std::string(name) == "entropy_clipped" && !negative_seen)) continue;
    double total = 0;
    for (double x : rows[name]) total += x;
    means[name] = total / static_cast<double>(rows[name].size());
  }
  return means;
}

// The mean of 1 − cosine over pairs of maps.
inline double mean_cosine_distance(const std::vector<Matrix>& maps) {
  const auto dot = [](const Matrix& a, const Matrix& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) sum += a[i][j] * b[i][j];
    }
    return sum;
  };
  double total = 0, pairs = 0;
  for (size_t a = 0; a < maps.size(); ++a) {
    for (size_t b = a + 1; b < maps.size(); ++b) {
      total += 1 - dot(maps[a], maps[b]) / std::sqrt(dot(maps[a], maps[a]) * dot(maps[b], maps[b]));
      ++pairs;
    }
  }
  return total / pairs;
}

// HSIC₁ from whole Gram matrices with zero diagonals, as the formula reads.
inline double hsic1(const Matrix& x, const Matrix& y) {
  const size_t n = x.size();
  const auto gram = [n](const Matrix& a) {
    Matrix k = zeros(n, n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        for (size_t f = 0; f < a[0].size() && i != j; ++f) k[i][j] += a[i][f] * a[j][f];
      }
    }
    return k;
  };
  const Matrix k = gram(x), l = gram(y);
  double trace = 0, sum_k = 0, sum_l = 0, product = 0;
  for (size_t i = 0; i < n; ++i) {
    double row_k = 0, row_l = 0;
    for (size_t j = 0; j < n; ++j) {
      trace += k[i][j] * l[j][i];
      row_k += k[j][i];
      row_l += l[i][j];
    }
    sum_k += row_k;
    sum_l += row_l;
    product += row_k * row_l;
  }
  const double m = static_cast<double>(n);
  return (trace + sum_k * sum_l / ((m - 1) * (m - 2)) - 2 * product / (m - 2)) / (m * (m - 3));
}

inline double cka(const Matrix& x, const Matrix& y) {
  return hsic1(x, y) / std::sqrt(hsic1(x, x) * hsic1(y, y));
}

}  // namespace unchain::ref
