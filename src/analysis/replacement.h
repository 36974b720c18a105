// Editors that put maps of low rank in place of A2 or A1, while a model reads. Protocol and what it shows:
// docs/analyses/functional-rank.md.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "analysis/low_rank.h"
#include "analysis/mean_map.h"
#include "attention/maps.h"

namespace unchain::analysis {

enum class MapPart : uint8_t { positive, noise };

struct ReplacementOptions {
  MapPart part = MapPart::noise;
  bool divide = false;          // rows of the new map by their sums, which count as 0.1 where they are less
  std::set<int> layers, heads;  // which ones; empty: all that have the map
};

// Which maps are replaced, for both editors.
class Replacement : public attention::Editor {
 public:
  bool wants(int layer) const override { return options_.layers.empty() || options_.layers.contains(layer); }
  // Errors: usage (a chosen layer without such a map, a chosen head that is not there); and as the editor says.
  void edit_maps(attention::MapPanel& panel) override;

 protected:
  explicit Replacement(ReplacementOptions options) : options_(std::move(options)) {}
  const ReplacementOptions& options() const { return options_; }
  // Replaces the map of one head; called for several heads at the same time.
  virtual void edit_head(const attention::MapPanel& panel, int head) const = 0;
  float* row(const attention::MapPanel& panel, int head, int64_t r) const;
  int64_t first_key(const attention::MapPanel& panel, int64_t r) const;

 private:
  ReplacementOptions options_;
};

enum class Approximation : uint8_t { truncated, fitted };  // see LowRank

// Each head's map of this very text, at rank R. It needs whole maps, and so whole texts: the first call of a context.
// A layer's map is that which it has while lower layers are replaced. Error of edit_maps(): usage (rows that do not
// begin at position 0); numeric (a weight that is not finite).
class OwnLowRank : public Replacement {
 public:
  OwnLowRank(ReplacementOptions options, Approximation approximation, int64_t rank)
      : Replacement(std::move(options)), approximation_(approximation), rank_(rank) {}
  bool wants_whole_maps() const override { return true; }

 private:
  void edit_head(const attention::MapPanel& panel, int head) const override;

  Approximation approximation_;
  int64_t rank_;
};

// By layer, a map for each head.
using FixedMaps = std::map<int, std::vector<Factors>>;

// The mean maps of all heads that were seen, fitted at each of these ranks. Errors: usage (no such map in the mean, a
// rank below 0).
std::vector<FixedMaps> fixed_maps(const MeanMaps& mean, MapPart part, const std::vector<int64_t>& ranks);

// One fixed map a head, whatever the text. Layers that it has no maps for stay. Error of edit_maps(): shape (a position
// behind the maps' end, other heads).
class FixedReplacement : public Replacement {
 public:
  // `maps` outlives this.
  FixedReplacement(ReplacementOptions options, const FixedMaps& maps) : Replacement(std::move(options)), maps_(&maps) {}
  bool wants(int layer) const override { return maps_->contains(layer) && Replacement::wants(layer); }

 private:
  void edit_head(const attention::MapPanel& panel, int head) const override;

  const FixedMaps* maps_;
};

}  // namespace unchain::analysis
