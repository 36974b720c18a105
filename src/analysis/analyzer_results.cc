// MapAnalyzer::results: per-window values become summaries.
#include <algorithm>

#include "analysis/analyzer.h"

namespace unchain::analysis {
namespace {

std::vector<std::optional<double>> column(const std::vector<Values>& windows, size_t measure) {
  std::vector<std::optional<double>> out;
  for (const Values& values : windows) out.push_back(values[measure]);
  return out;
}

// Each window's mean over what `add` was given.
class WindowMeans {
 public:
  explicit WindowMeans(size_t windows) : sums_(windows), counts_(windows) {}
  void add(const std::vector<std::optional<double>>& values) {
    for (size_t w = 0; w < values.size(); ++w) {
      if (!values[w]) continue;
      sums_[w] += *values[w];
      ++counts_[w];
    }
  }
  std::vector<std::optional<double>> means() const {
    std::vector<std::optional<double>> out(sums_.size());
    for (size_t w = 0; w < sums_.size(); ++w) {
      if (counts_[w] > 0) out[w] = sums_[w] / static_cast<double>(counts_[w]);
    }
    return out;
  }

 private:
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

void note_extreme(AnalysisResults& out, size_t measure, const Extreme& value) {
  auto& highest = out.highest[measure];
  auto& lowest = out.lowest[measure];
  if (!highest || value.value > highest->value) highest = value;
  if (!lowest || value.value < lowest->value) lowest = value;
}

// As many tokens as all heads' triangles have room for.
int64_t excerpt_size(int64_t available, int64_t heads, int64_t bytes) {
  while (available > 1 && available * (available + 1) / 2 * heads > bytes) --available;
  return available;
}

}  // namespace

AnalysisResults MapAnalyzer::results() const {
  AnalysisResults out;
  out.windows = windows_;
  Bootstrap bootstrap(options_.seed);
  std::vector<WindowMeans> all(kMapKinds * kMeasureCount, WindowMeans(windows_.size()));
  WindowMeans lambda(windows_.size()), cosine(windows_.size()), cka(windows_.size());
  int64_t heads = 0;
  for (const auto& [layer, state] : layers_) heads += static_cast<int64_t>(state.heads.size());
  if (heads > 0)
    out.excerpt_tokens =
        excerpt_size(std::min(windows_.front(), options_.excerpt_tokens), heads, options_.excerpt_bytes);
  const size_t excerpt = static_cast<size_t>(out.excerpt_tokens * (out.excerpt_tokens + 1) / 2);
  const size_t tokens = static_cast<size_t>(out.excerpt_tokens);
  out.tokens.assign(excerpt_token_ids_.begin(), excerpt_token_ids_.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                                 tokens, excerpt_token_ids_.size())));
  out.pieces.assign(excerpt_pieces_.begin(),
                    excerpt_pieces_.begin() + static_cast<std::ptrdiff_t>(std::min(tokens, excerpt_pieces_.size())));

  for (const auto& [layer, state] : layers_) {
    LayerResults& layer_out = out.layers.emplace_back();
    layer_out.layer = layer;
    layer_out.window = state.window;
    layer_out.noise = state.noise;
    layer_out.lambda = bootstrap.summarise(state.lambda);
    layer_out.cosine_distance = bootstrap.summarise(state.cosine_distance);
    layer_out.cka = bootstrap.summarise(state.cka);
    lambda.add(state.lambda);
    cosine.add(state.cosine_distance);
    cka.add(state.cka);
    for (size_t h = 0; h < state.heads.size(); ++h) {
      const HeadState& head = state.heads[h];
      HeadResults& head_out = layer_out.heads.emplace_back();
      head_out.head = static_cast<int>(h);
      for (size_t kind = 0; kind < kMapKinds; ++kind) {
        for (size_t m = 0; m < kMeasureCount; ++m) {
          const auto values = column(head.windows[kind], m);
          head_out.measures[kind][m] = bootstrap.summarise(values);
          all[kind * kMeasureCount + m].add(values);
          if (kind == 0 && head_out.measures[0][m])
            note_extreme(out, m, {layer, head_out.head, head_out.measures[0][m]->mean});
        }
      }
      head_out.histograms = head.histograms;
      for (const double sum : head.spectrum_sums) head_out.spectrum.push_back(sum / static_cast<double>(head.spectra));
      const size_t kept = std::min(excerpt, head.excerpt.size());
      head_out.excerpt.assign(head.excerpt.begin(), head.excerpt.begin() + static_cast<std::ptrdiff_t>(kept));
      const auto signs_end = head.excerpt_negative.begin() + static_cast<std::ptrdiff_t>(kept);
      if (std::find(head.excerpt_negative.begin(), signs_end, true) == signs_end) continue;
      head_out.excerpt_signs.resize((kept + 7) / 8);
      for (size_t i = 0; i < kept; ++i) {
        if (head.excerpt_negative[i]) head_out.excerpt_signs[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
      }
    }
  }
  for (size_t kind = 0; kind < kMapKinds; ++kind) {
    for (size_t m = 0; m < kMeasureCount; ++m)
      out.summary[kind][m] = bootstrap.summarise(all[kind * kMeasureCount + m].means());
  }
  out.lambda = bootstrap.summarise(lambda.means());
  out.cosine_distance = bootstrap.summarise(cosine.means());
  out.cka = bootstrap.summarise(cka.means());
  return out;
}

}  // namespace unchain::analysis
