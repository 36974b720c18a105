// One pass over a row forms every sum, four lanes at a time; a second one counts the histogram; the largest 20 are
// picked from a copy of the magnitudes. Lanes are the compilers' generic vectors, which become whatever the target has.
#include "analysis/row_measures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace unchain::analysis {
namespace {

typedef float Lanes __attribute__((vector_size(16)));
typedef int32_t IntLanes __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
constexpr int64_t kChunk = 256;  // keys summed in f32 before they join an f64

inline Lanes load(const float* p) {
  Lanes x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

inline double sum(Lanes x) {
  return (double{x[0]} + double{x[1]}) + (double{x[2]} + double{x[3]});
}

inline Lanes splat(float x) {
  return Lanes{x, x, x, x};
}

// ln x for x ≥ 0; anything below 1e-37, 0 too, gives ln 1e-37. x = m·2^e with m in [√½, √2), then
// ln m = 2·artanh(s) = 2(s + s³/3 + s⁵/5 + s⁷/7 + s⁹/9), s = (m−1)/(m+1), |s| < 0.1716: the rest is below 8e-10.
// |error| ≤ 1.2e-7·max(1, |ln x|).
inline Lanes ln(Lanes x) {
  const Lanes tiny = splat(1e-37f);
  x = x > tiny ? x : tiny;
  IntLanes bits;
  std::memcpy(&bits, &x, sizeof bits);
  const IntLanes exponent = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3: √½
  bits -= exponent << 23;
  Lanes m;
  std::memcpy(&m, &bits, sizeof m);
  const Lanes s = (m - 1.0f) / (m + 1.0f);
  const Lanes z = s * s;
  const Lanes series = 2.0f + z * (2.0f / 3 + z * (2.0f / 5 + z * (2.0f / 7 + z * (2.0f / 9))));
  return __builtin_convertvector(exponent, Lanes) * 0.693147181f + s * series;
}

struct RowSums {
  double p = 0, magnitude = 0, squares = 0, p_ln_p = 0;  // Σp, Σ|p|, Σp², Σ|p| ln|p|
  double positive = 0, negative = 0;                     // Σ|p| over p > 0 and over p < 0
  double positive_p_ln_p = 0;                            // Σ p ln p over p > 0
  double small_count = 0, negative_count = 0;
  double weighted = 0;  // Σ|p|·norm
};

// Sums over `count` keys, a multiple of kLanes, at most kChunk; magnitudes[count] and logs[count] are written.
void add_chunk(RowSums& sums, const float* p, const float* norm, int64_t count, float threshold, float* magnitudes,
               float* logs) {
  const Lanes zero = splat(0), one = splat(1), limit = splat(threshold);
  Lanes s = zero, a = zero, q = zero, l = zero, lp = zero, small = zero, negative = zero, w = zero;
  Lanes plus = zero, minus = zero;
  for (int64_t j = 0; j < count; j += kLanes) {
    const Lanes x = load(p + j);
    const Lanes magnitude = x < zero ? -x : x;
    const Lanes log = ln(magnitude);
    const Lanes term = magnitude * log;
    s += x;
    a += magnitude;
    q += x * x;
    l += term;
    lp += x > zero ? term : zero;
    plus += x > zero ? x : zero;
    minus += x < zero ? magnitude : zero;
    small += magnitude < limit ? one : zero;
    negative += x < zero ? one : zero;
    if (norm) w += magnitude * load(norm + j);
    std::memcpy(magnitudes + j, &magnitude, sizeof magnitude);
    std::memcpy(logs + j, &log, sizeof log);
  }
  sums.p += sum(s);
  sums.magnitude += sum(a);
  sums.squares += sum(q);
  sums.p_ln_p += sum(l);
  sums.positive_p_ln_p += sum(lp);
  sums.positive += sum(plus);
  sums.negative += sum(minus);
  sums.small_count += sum(small);
  sums.negative_count += sum(negative);
  sums.weighted += sum(w);
}

RowSums sum_row(const RowInput& row, float threshold, float* magnitudes, float* logs) {
  RowSums sums;
  const int64_t visible = row.position + 1 - row.first;
  const float* p = row.p + row.first;
  const float* norm = row.value_norm ? row.value_norm + row.first : nullptr;
  const int64_t whole = visible - visible % kLanes;
  for (int64_t j = 0; j < whole; j += kChunk) {
    add_chunk(sums, p + j, norm ? norm + j : nullptr, std::min(kChunk, whole - j), threshold, magnitudes + j, logs + j);
  }
  if (const int64_t rest = visible - whole; rest > 0) {
    float last[kLanes] = {}, last_norm[kLanes] = {};
    std::copy_n(p + whole, rest, last);
    if (norm) std::copy_n(norm + whole, rest, last_norm);
    add_chunk(sums, last, norm ? last_norm : nullptr, kLanes, threshold, magnitudes + whole, logs + whole);
    if (0 < threshold) sums.small_count -= static_cast<double>(kLanes - rest);  // the zeros that fill the lanes
  }
  return sums;
}

// Shannon entropy of weights with this sum and this Σ w ln w, in nats.
double entropy(double total, double w_ln_w) {
  return std::max(0.0, std::log(total) - w_ln_w / total);
}

}  // namespace

InductionTargets::InductionTargets(std::span<const int32_t> tokens) : rows_(tokens.size(), {-1, 0}) {
  std::unordered_map<uint64_t, int32_t> index;
  const auto pair = [&](size_t j) {
    return uint64_t{static_cast<uint32_t>(tokens[j - 1])} << 32 | static_cast<uint32_t>(tokens[j]);
  };
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (i > 0) {  // key i becomes visible before row i asks
      const auto [entry, fresh] = index.try_emplace(pair(i), static_cast<int32_t>(keys_.size()));
      if (fresh) keys_.emplace_back();
      keys_[static_cast<size_t>(entry->second)].push_back(static_cast<int64_t>(i));
    }
    if (const auto found = index.find(pair(i + 1)); found != index.end()) {
      rows_[i] = {found->second, static_cast<int32_t>(keys_[static_cast<size_t>(found->second)].size())};
    }
  }
}

std::span<const int64_t> InductionTargets::keys(int64_t row) const {
  if (row < 0 || row >= static_cast<int64_t>(rows_.size())) return {};
  const auto [entry, count] = rows_[static_cast<size_t>(row)];
  if (entry < 0) return {};
  return std::span(keys_[static_cast<size_t>(entry)]).first(static_cast<size_t>(count));
}

void Histograms::add(const Histograms& other) {
  for (size_t i = 0; i < log10_weight.size(); ++i) log10_weight[i] += other.log10_weight[i];
  for (size_t i = 0; i < entropy_normalised.size(); ++i) entropy_normalised[i] += other.entropy_normalised[i];
}

bool RowAccumulator::add(const RowInput& row) {
  const int64_t i = row.position;
  if (i == 0) return true;
  const int64_t visible = i + 1 - row.first;
  const size_t room = static_cast<size_t>(visible + kLanes);
  if (logs_.size() < room) {
    logs_.resize(room);
    magnitudes_.resize(room);
  }
  const float threshold = 1.0f / (10.0f * static_cast<float>(i + 1));
  const RowSums sums = sum_row(row, threshold, magnitudes_.data(), logs_.data());
  if (!std::isfinite(sums.squares) || !std::isfinite(sums.weighted)) return false;

  const auto mean = [&](Measure m) -> Mean& { return means_[static_cast<size_t>(m)]; };
  const double keys = static_cast<double>(visible);
  const double first_weight = row.first == 0 ? row.p[0] : 0;
  mean(Measure::row_sum).add(sums.p);
  mean(Measure::row_sum_without_first).add(sums.p - first_weight);
  mean(Measure::sparsity).add(sums.small_count / keys);
  mean(Measure::context_rms).add(std::sqrt(sums.squares));
  mean(Measure::negative_share).add(sums.negative_count / keys);
  any_negative_ |= sums.negative_count > 0;
  for (int64_t j = 0; j < visible; ++j) {
    // ln to quarter decades from 1e-8: 4/ln 10 = 1.7371779
    const int bin = static_cast<int>(logs_[static_cast<size_t>(j)] * 1.7371779f + 32.0f);
    ++histograms_.log10_weight[static_cast<size_t>(std::clamp(bin, 0, Histograms::kWeightBins - 1))];
  }
  if (sums.magnitude == 0) return true;  // a row without weight has no shares

  const double h = entropy(sums.magnitude, sums.p_ln_p);
  mean(Measure::entropy).add(h);
  if (visible > 1) {
    const double normalised = h / std::log(keys);
    mean(Measure::entropy_normalised).add(normalised);
    const int bin = static_cast<int>(normalised * Histograms::kEntropyBins);
    ++histograms_.entropy_normalised[static_cast<size_t>(std::clamp(bin, 0, Histograms::kEntropyBins - 1))];
  }
  if (sums.positive > 0) mean(Measure::entropy_clipped).add(entropy(sums.positive, sums.positive_p_ln_p));
  mean(Measure::sink_mass).add(std::abs(first_weight) / sums.magnitude);
  if (row.value_norm && sums.weighted > 0) {
    mean(Measure::sink_mass_value_weighted).add(std::abs(first_weight) * row.value_norm[0] / sums.weighted);
  }
  mean(Measure::negative_mass).add(sums.negative / sums.magnitude);

  const auto begin = magnitudes_.begin(), end = begin + visible;
  const auto top = begin + std::min<int64_t>(20, visible);
  if (top != end) std::nth_element(begin, top - 1, end, std::greater<>());
  std::sort(begin, top, std::greater<>());
  const auto top_mass = [&](int64_t k) {
    double mass = 0;
    for (int64_t j = 0; j < std::min(k, visible); ++j) mass += begin[j];
    return std::min(1.0, mass / sums.magnitude);
  };
  mean(Measure::top_mass_1).add(top_mass(1));
  mean(Measure::top_mass_5).add(top_mass(5));
  mean(Measure::top_mass_20).add(top_mass(20));

  double induction = 0;
  bool has_target = false;
  for (const int64_t j : row.induction_keys) {
    if (j < row.first) continue;
    induction += row.p[j];
    has_target = true;
  }
  if (has_target) mean(Measure::induction_mass).add(induction / sums.magnitude);
  return true;
}

void RowAccumulator::write(Values& values) const {
  for (size_t m = 0; m < kMeasureCount; ++m) {
    if (means_[m].count > 0) values[m] = means_[m].sum / static_cast<double>(means_[m].count);
  }
  if (!any_negative_) at(values, Measure::entropy_clipped).reset();
}

}  // namespace unchain::analysis
