// Measures every head of every layer over windows of a text: an observer of attention maps, wherever they come from
// (the engine's taps or a maps file). Holds the maps of one layer at a time, and those only up to max_map_tokens; of
// longer windows just the rows of the block. What is measured: docs/measures.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/heads.h"
#include "analysis/measures.h"
#include "analysis/row_measures.h"
#include "analysis/summary.h"
#include "attention/maps.h"
#include "tensor/tensor.h"

namespace unchain::analysis {

// The maps of a head: P, and where there is a noise term, its parts.
enum class MapKind : uint8_t { map, positive, noise };
inline constexpr size_t kMapKinds = 3;

struct AnalysisOptions {
  Selection selection;
  uint64_t seed = 0;                                        // of the bootstrap and of the permuted references
  int64_t max_map_tokens = 1024;                            // whole-map ranks are absent for longer windows
  int64_t excerpt_tokens = 96;                              // of the first window's maps, for the page
  int64_t excerpt_bytes = 900000;                           // of all excerpts together: beyond it fewer tokens are kept
  std::function<void(int64_t window, int layer)> progress;  // after each layer; may be empty
};

using Summaries = std::array<std::optional<Summary>, kMeasureCount>;

struct HeadResults {
  int head = 0;
  std::array<Summaries, kMapKinds> measures;  // by MapKind; the parts are absent without a noise term
  // For the page. The spectrum: singular values over the largest, mean over windows, at most 64, of the block or, where
  // there is none, of the whole map. Excerpt: |P_ij| of the first tokens, lower triangle row by row, round(255·√|P|),
  // and as many bits, lowest of a byte first, that are 1 for a negative weight (empty if none is).
  std::vector<double> spectrum;
  std::vector<uint8_t> excerpt, excerpt_signs;
  Histograms histograms;
};

struct LayerResults {
  int layer = 0;
  int64_t window = 0;  // of the attention, 0: none
  bool noise = false;
  std::optional<Summary> lambda, cosine_distance, cka;
  std::vector<HeadResults> heads;
};

struct Extreme {
  int layer = 0, head = 0;
  double value = 0;
};

struct AnalysisResults {
  std::vector<int64_t> windows;  // tokens of each
  std::vector<LayerResults> layers;
  // Over all heads: each window's mean over heads, summarised over windows; and the heads with the extreme means.
  std::array<Summaries, kMapKinds> summary;
  std::optional<Summary> lambda, cosine_distance, cka;
  std::array<std::optional<Extreme>, kMeasureCount> highest, lowest;
  int64_t excerpt_tokens = 0;
  std::vector<int32_t> tokens;      // of the excerpt; empty if unknown
  std::vector<std::string> pieces;  // likewise
};

// Use: begin_window, then one forward pass with this observer (or MapsFile::replay), end_window; again; results.
// Not thread-safe; uses the process's threads inside.
class MapAnalyzer : public attention::Observer {
 public:
  explicit MapAnalyzer(AnalysisOptions options);

  // A window of `count` tokens. `tokens`: their ids, or empty where unknown (no induction mass); `pieces`: their texts,
  // of which the first window's are kept for the page, or empty. Error: usage if count < 1 or a length differs from it.
  void begin_window(int64_t count, std::span<const int32_t> tokens, std::span<const std::string> pieces = {});
  // Errors: usage if the window has layers without end or none at all.
  void end_window();
  AnalysisResults results() const;

  bool wants_value_norm() const override;
  // Errors: shape if panels do not follow each other or do not fit the window; numeric if a weight is not finite,
  // naming layer, head, row and key.
  void on_maps(const attention::MapPanel& panel) override;
  void on_outputs(const attention::OutputPanel& panel) override;
  void end_layer(int layer) override;

 private:
  struct HeadState {
    std::array<std::vector<Values>, kMapKinds> windows;
    std::vector<double> spectrum_sums;
    int64_t spectra = 0;
    std::vector<uint8_t> excerpt;
    std::vector<bool> excerpt_negative;
    Histograms histograms;
  };
  struct LayerState {
    int64_t window = 0;
    bool noise = false;
    std::vector<HeadState> heads;
    std::vector<std::optional<double>> lambda, cosine_distance, cka;
  };
  // The layer whose panels are coming in.
  struct Current {
    int layer = -1;
    int64_t rows = 0, output_rows = 0, output_width = 0;
    std::vector<RowAccumulator> accumulators;  // [kinds, heads]
    MapProducts products;
    double lambda_sum = 0;
  };
  struct Rows {  // one kind's rows of a panel
    const float* data = nullptr;
    int64_t row_stride = 0, head_stride = 0;
    const float* row(int head, int64_t r) const { return data + head * head_stride + r * row_stride; }
  };

  void begin_layer(const attention::MapPanel& panel);
  Rows signed_rows(const attention::MapPanel& panel);
  void take_rows(const attention::MapPanel& panel, const Rows& rows, size_t kind, int head);
  void store_row(const float* row, int64_t position, size_t kind, int head);
  void take_excerpt(const float* row, int64_t position, HeadState& head) const;
  void measure_ranks(LayerState& state);
  void measure_head_ranks(LayerState& state, size_t kind, int head);
  const Values& uniform_ranks(int64_t window);
  size_t kinds(const LayerState& state) const { return state.noise ? kMapKinds : 1; }
  size_t window_index() const { return windows_.size() - 1; }
  // The stored map: all rows or only those of the block, and how many columns each has.
  bool stores_whole() const;
  int64_t stored_rows() const;
  int64_t stored_columns() const;
  float* stored(size_t kind, int head);

  AnalysisOptions options_;
  std::vector<int64_t> windows_;
  bool in_window_ = false;
  InductionTargets induction_;
  std::vector<int64_t> block_rows_;
  int64_t block_columns_ = 0;
  std::vector<int32_t> excerpt_token_ids_;
  std::vector<std::string> excerpt_pieces_;
  std::map<int, LayerState> layers_;
  std::map<std::pair<int64_t, int64_t>, Values> uniform_;  // by tokens and window
  Current current_;
  Buffer<float> signed_, outputs_;
  std::array<Buffer<float>, kMapKinds> maps_;  // [heads, stored rows, stored columns]
};

}  // namespace unchain::analysis
