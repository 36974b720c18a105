#include "analysis/analyzer.h"

#include <algorithm>
#include <cmath>

#include "analysis/rank.h"
#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {
namespace {

constexpr size_t kSpectrum = 64;

void write_ranks(Values& values, Measure first, const RankMeasures& ranks, const Selection& selection) {
  const double five[] = {ranks.entropy, ranks.entropy_squared, ranks.stable, ranks.r90, ranks.r99};
  for (size_t k = 0; k < 5; ++k) {
    const auto measure = static_cast<Measure>(static_cast<size_t>(first) + k);
    if (selection.has(measure)) at(values, measure) = five[k];
  }
}

[[noreturn]] void fail_not_finite(const attention::MapPanel& panel, const float* row, size_t kind, int head,
                                  int64_t r) {
  static constexpr const char* kNames[] = {"weight", "positive weight", "noise weight"};
  const int64_t position = panel.first_row + r;
  for (int64_t j = 0; j <= position; ++j) {
    if (std::isfinite(row[j])) continue;
    fail(ErrorCode::numeric, "layer {} head {} row {} key {}: the {} is {}, expected a finite number", panel.layer,
         head, position, j, kNames[kind], row[j]);
  }
  fail(ErrorCode::numeric, "layer {} head {} row {}: its {}s or its values' norms are too large or not finite",
       panel.layer, head, position, kNames[kind]);
}

}  // namespace

MapAnalyzer::MapAnalyzer(AnalysisOptions options) : options_(std::move(options)) {}

bool MapAnalyzer::wants_value_norm() const {
  return options_.selection.has(Measure::sink_mass_value_weighted);
}

void MapAnalyzer::begin_window(int64_t count, std::span<const int32_t> tokens, std::span<const std::string> pieces) {
  const size_t size = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (in_window_ || count < 1 || (!tokens.empty() && tokens.size() != size) ||
      (!pieces.empty() && pieces.size() != size)) {
    fail(ErrorCode::usage,
         "analysis: a window of {} tokens, {} ids and {} pieces{}; expected at least one token, and as many ids and "
         "pieces or none",
         count, tokens.size(), pieces.size(), in_window_ ? " inside another window" : "");
  }
  in_window_ = true;
  windows_.push_back(count);
  induction_ = InductionTargets(tokens);
  const Block block = rank_block(count);
  block_rows_ = block.rows;
  block_columns_ = block.columns;
  if (windows_.size() == 1) {
    const size_t kept = static_cast<size_t>(std::min(count, options_.excerpt_tokens));
    excerpt_token_ids_.assign(tokens.begin(),
                              tokens.begin() + static_cast<std::ptrdiff_t>(std::min(kept, tokens.size())));
    excerpt_pieces_.assign(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(std::min(kept, pieces.size())));
  }
}

void MapAnalyzer::end_window() {
  if (!in_window_ || current_.layer >= 0 || layers_.empty()) {
    fail(ErrorCode::usage, "analysis: end of a window {}",
         !in_window_       ? "that never began"
         : layers_.empty() ? "in which no layer was seen"
                           : "inside a layer");
  }
  in_window_ = false;
}

bool MapAnalyzer::stores_whole() const {
  const bool wanted = options_.selection.has(MeasureGroup::rank) || options_.selection.has(MeasureGroup::references);
  return wanted && windows_.back() <= options_.max_map_tokens;
}

int64_t MapAnalyzer::stored_rows() const {
  if (stores_whole()) return windows_.back();
  return options_.selection.has(MeasureGroup::block) ? static_cast<int64_t>(block_rows_.size()) : 0;
}

int64_t MapAnalyzer::stored_columns() const {
  return stores_whole() ? windows_.back() : block_columns_;
}

float* MapAnalyzer::stored(size_t kind, int head) {
  return maps_[kind].data() + head * stored_rows() * stored_columns();
}

void MapAnalyzer::begin_layer(const attention::MapPanel& panel) {
  const auto [entry, fresh] = layers_.try_emplace(panel.layer);
  LayerState& state = entry->second;
  if (fresh) {
    state.window = panel.window;
    state.noise = panel.noise != nullptr;
    state.heads.resize(static_cast<size_t>(panel.heads));
  }
  if (!fresh && (state.heads.size() != static_cast<size_t>(panel.heads) || state.noise != (panel.noise != nullptr))) {
    fail(ErrorCode::shape, "layer {}: {} heads{}, expected {}{} as in the first window", panel.layer, panel.heads,
         panel.noise ? " with noise" : "", state.heads.size(), state.noise ? " with noise" : "");
  }
  current_ = Current{};
  current_.layer = panel.layer;
  current_.accumulators.resize(kinds(state) * state.heads.size());
  current_.products = MapProducts(panel.heads);
  for (HeadState& head : state.heads) {
    for (size_t kind = 0; kind < kinds(state); ++kind) head.windows[kind].resize(windows_.size());
  }
  for (auto* values : {&state.lambda, &state.cosine_distance, &state.cka}) values->resize(windows_.size());
  for (size_t kind = 0; kind < kinds(state); ++kind) {
    maps_[kind].reserve(static_cast<size_t>(panel.heads * stored_rows() * stored_columns()));
  }
}

// P = A1 − λ·A2 of the panel: in a buffer of its own where there is a noise term, else the positive map itself.
MapAnalyzer::Rows MapAnalyzer::signed_rows(const attention::MapPanel& panel) {
  if (!panel.noise) return {panel.positive, panel.row_stride, panel.head_stride};
  const int64_t head_stride = panel.rows * panel.keys;
  signed_.reserve(static_cast<size_t>(panel.heads * head_stride));
  parallel_for(panel.heads, [&](int64_t h) {
    const int head = static_cast<int>(h);
    for (int64_t r = 0; r < panel.rows; ++r)
      panel.signed_row(head, r, signed_.data() + h * head_stride + r * panel.keys);
  });
  return {signed_.data(), panel.keys, head_stride};
}

void MapAnalyzer::on_maps(const attention::MapPanel& panel) {
  if (!in_window_) fail(ErrorCode::usage, "analysis: maps outside a window");
  if (current_.layer < 0) begin_layer(panel);
  LayerState& state = layers_.at(current_.layer);
  if (panel.layer != current_.layer || panel.first_row != current_.rows || panel.rows < 1 ||
      panel.keys != panel.first_row + panel.rows || panel.keys > windows_.back() ||
      static_cast<size_t>(panel.heads) != state.heads.size() || (panel.noise != nullptr) != state.noise ||
      (panel.noise && !panel.lambda)) {
    fail(ErrorCode::shape,
         "layer {}: panel of {} heads, rows {} … {}, {} keys; expected layer {}, {} heads, rows from {}, within {} "
         "tokens",
         panel.layer, panel.heads, panel.first_row, panel.first_row + panel.rows - 1, panel.keys, current_.layer,
         state.heads.size(), current_.rows, windows_.back());
  }
  const std::array<Rows, kMapKinds> rows = {signed_rows(panel),
                                            Rows{panel.positive, panel.row_stride, panel.head_stride},
                                            Rows{panel.noise, panel.row_stride, panel.head_stride}};
  parallel_for(static_cast<int64_t>(kinds(state)) * panel.heads, [&](int64_t task) {
    const size_t kind = static_cast<size_t>(task / panel.heads);
    take_rows(panel, rows[kind], kind, static_cast<int>(task % panel.heads));
  });
  if (options_.selection.redundancy) {
    current_.products.add(rows[0].data, panel.rows, panel.keys, rows[0].row_stride, rows[0].head_stride);
  }
  for (int64_t i = 0; panel.lambda && i < panel.heads * panel.rows; ++i) current_.lambda_sum += panel.lambda[i];
  current_.rows += panel.rows;
}

void MapAnalyzer::take_rows(const attention::MapPanel& panel, const Rows& rows, size_t kind, int head) {
  LayerState& state = layers_.at(panel.layer);
  RowAccumulator& accumulator = current_.accumulators[kind * state.heads.size() + static_cast<size_t>(head)];
  const float* norm = panel.value_norm ? panel.value_norm + head * panel.value_norm_stride : nullptr;
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* row = rows.row(head, r);
    const int64_t position = panel.first_row + r;
    const RowInput input{row, position, panel.first_key(r), norm, induction_.keys(position)};
    if (!accumulator.add(input)) fail_not_finite(panel, row, kind, head, r);
    store_row(row, position, kind, head);
    if (kind == 0 && window_index() == 0) take_excerpt(row, position, state.heads[static_cast<size_t>(head)]);
  }
}

void MapAnalyzer::store_row(const float* row, int64_t position, size_t kind, int head) {
  const int64_t columns = stored_columns();
  if (stores_whole()) {
    float* out = stored(kind, head) + position * columns;
    std::copy_n(row, position + 1, out);
    std::fill(out + position + 1, out + columns, 0.0f);
  } else if (stored_rows() > 0) {
    const auto place = std::lower_bound(block_rows_.begin(), block_rows_.end(), position);
    if (place == block_rows_.end() || *place != position) return;
    std::copy_n(row, columns, stored(kind, head) + (place - block_rows_.begin()) * columns);
  }
}

void MapAnalyzer::take_excerpt(const float* row, int64_t position, HeadState& head) const {
  if (position >= options_.excerpt_tokens) return;
  for (int64_t j = 0; j <= position; ++j) {
    head.excerpt.push_back(static_cast<uint8_t>(std::lround(255 * std::sqrt(std::min(1.0f, std::abs(row[j]))))));
    head.excerpt_negative.push_back(row[j] < 0);
  }
}

void MapAnalyzer::on_outputs(const attention::OutputPanel& panel) {
  if (!options_.selection.redundancy) return;
  if (panel.layer != current_.layer || panel.first_row != current_.output_rows ||
      panel.first_row + panel.rows > windows_.back() ||
      static_cast<size_t>(panel.heads) != layers_.at(current_.layer).heads.size()) {
    fail(ErrorCode::shape,
         "layer {}: outputs of {} heads, rows from {}; expected layer {}, rows from {}, within {} tokens", panel.layer,
         panel.heads, panel.first_row, current_.layer, current_.output_rows, windows_.back());
  }
  const int64_t width = panel.heads * panel.value_width;
  if (current_.output_rows == 0) {
    outputs_.reserve(static_cast<size_t>(windows_.back() * width));
    current_.output_width = panel.value_width;
  }
  for (int64_t r = 0; r < panel.rows; ++r) {
    std::copy_n(panel.output + r * panel.row_stride, width, outputs_.data() + (panel.first_row + r) * width);
  }
  current_.output_rows += panel.rows;
}

void MapAnalyzer::end_layer(int layer) {
  if (layer != current_.layer || current_.rows != windows_.back()) {
    fail(ErrorCode::shape, "layer {}: ended after {} of {} rows of layer {}", layer, current_.rows,
         windows_.empty() ? 0 : windows_.back(), current_.layer);
  }
  LayerState& state = layers_.at(layer);
  const size_t window = window_index();
  const Selection& selection = options_.selection;
  for (size_t h = 0; h < state.heads.size(); ++h) {
    for (size_t kind = 0; kind < kinds(state); ++kind) {
      Values& values = state.heads[h].windows[kind][window];
      current_.accumulators[kind * state.heads.size() + h].write(values);
      for (size_t m = 0; m < kMeasureCount; ++m) {
        if (!selection.measures[m] || (kind > 0 && !info(static_cast<Measure>(m)).of_parts)) values[m].reset();
      }
    }
    state.heads[h].histograms.add(current_.accumulators[h].histograms());
  }
  measure_ranks(state);
  if (state.noise)
    state.lambda[window] =
        current_.lambda_sum / static_cast<double>(static_cast<int64_t>(state.heads.size()) * current_.rows);
  if (selection.redundancy) {
    state.cosine_distance[window] = current_.products.mean_cosine_distance();
    if (current_.output_rows == windows_.back()) {
      state.cka[window] =
          mean_cka(outputs_.data(), windows_.back(), static_cast<int>(state.heads.size()), current_.output_width);
    }
  }
  current_.layer = -1;
  if (options_.progress) options_.progress(static_cast<int64_t>(window), layer);
}

void MapAnalyzer::measure_ranks(LayerState& state) {
  if (stored_rows() == 0) return;
  if (stores_whole() && options_.selection.has(MeasureGroup::references)) {
    const Values& uniform = uniform_ranks(state.window);
    for (HeadState& head : state.heads) {
      Values& values = head.windows[0][window_index()];
      for (size_t m = 0; m < kMeasureCount; ++m) {
        if (uniform[m]) values[m] = uniform[m];
      }
    }
  }
  const int64_t heads = static_cast<int64_t>(state.heads.size());
  parallel_for(static_cast<int64_t>(kinds(state)) * heads, [&](int64_t task) {
    measure_head_ranks(state, static_cast<size_t>(task / heads), static_cast<int>(task % heads));
  });
}

// Runs for several heads at the same time; touches only this head's state, and its stored map, which it may destroy.
void MapAnalyzer::measure_head_ranks(LayerState& state, size_t kind, int head) {
  const Selection& selection = options_.selection;
  HeadState& out = state.heads[static_cast<size_t>(head)];
  Values& values = out.windows[kind][window_index()];
  const int64_t tokens = windows_.back(), columns = stored_columns();
  float* map = stored(kind, head);
  std::vector<double> spectrum;
  const bool all_visible = state.window == 0 || state.window >= tokens;
  if (selection.has(MeasureGroup::block) && all_visible && !block_rows_.empty()) {
    std::vector<float> block;
    for (size_t r = 0; r < block_rows_.size(); ++r) {
      const float* row = map + (stores_whole() ? block_rows_[r] : static_cast<int64_t>(r)) * columns;
      block.insert(block.end(), row, row + block_columns_);
    }
    spectrum = singular_values(block.data(), static_cast<int64_t>(block_rows_.size()), block_columns_, block_columns_);
    write_ranks(values, Measure::block_rank_entropy, rank_measures(spectrum), selection);
  }
  if (stores_whole() && selection.has(MeasureGroup::rank)) {
    std::vector<double> whole = singular_values(map, tokens, tokens, columns);
    write_ranks(values, Measure::rank_entropy, rank_measures(whole), selection);
    if (spectrum.empty()) spectrum = std::move(whole);
  }
  if (stores_whole() && selection.has(MeasureGroup::references) && window_index() == 0) {
    const uint64_t stream =
        (static_cast<uint64_t>(current_.layer) << 32 | static_cast<uint64_t>(head)) * kMapKinds + kind;
    permute_visible(map, tokens, state.window, options_.seed, stream);
    write_ranks(values, Measure::permuted_rank_entropy, rank_measures(singular_values(map, tokens, tokens, columns)),
                selection);
  }
  if (kind != 0 || spectrum.empty() || spectrum[0] <= 0) return;
  out.spectrum_sums.resize(std::max(out.spectrum_sums.size(), std::min(kSpectrum, spectrum.size())));
  for (size_t k = 0; k < std::min(kSpectrum, spectrum.size()); ++k) out.spectrum_sums[k] += spectrum[k] / spectrum[0];
  ++out.spectra;
}

const Values& MapAnalyzer::uniform_ranks(int64_t window) {
  const int64_t tokens = windows_.back();
  const auto [entry, fresh] = uniform_.try_emplace({tokens, window >= tokens ? 0 : window});
  if (fresh) {
    std::vector<float> map(static_cast<size_t>(tokens * tokens));
    fill_uniform(map.data(), tokens, window);
    write_ranks(entry->second, Measure::uniform_rank_entropy,
                rank_measures(singular_values(map.data(), tokens, tokens, tokens)), options_.selection);
  }
  return entry->second;
}

}  // namespace unchain::analysis
