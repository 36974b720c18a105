// Attention maps in a file, so that `analyze` serves attentions that this engine has never run, and `capture` writes
// ours.
//
// Safetensors, N tokens; L and H are numbers from 0, those chosen:
//   layer.L.head.H.positive  [N, N]   A1, causal: 0 above the diagonal
//   layer.L.head.H.noise     [N, N]   A2, in all heads of the layer or in none
//   layer.L.lambda           [heads] or [heads, N], where there is a noise map: P = A1 − λ·A2
//   tokens                   [N] i32, optional
//   metadata: pieces (JSON list of N strings), model (name), windows (JSON object, layer → attention window), all
//   optional
// Maps are written as f32 and read as f32, f16, bf16 or f64. Other tensors are an error: a misspelt name shall not
// pass.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/analyzer.h"
#include "attention/maps.h"
#include "formats/safetensors.h"

namespace unchain::analysis {

// A maps file, open and checked by its header. Immutable; cheap to move.
class MapsFile {
 public:
  struct Layer {
    std::vector<int> heads;  // ascending numbers; there may be gaps where only some were captured
    std::vector<Tensor> positive, noise;
    std::optional<Tensor> lambda;
    int64_t window = 0;
  };

  // Errors: io; format (not such a file: names, shapes that are not square or differ, parts missing, bad metadata);
  // unsupported (element type); shape (above 65536 tokens).
  static MapsFile open(const std::filesystem::path& path);
  // The same of bytes in memory, which the owner keeps alive (null: the caller does).
  static MapsFile parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, const std::string& name);

  int64_t tokens() const { return tokens_; }
  const std::vector<int32_t>& token_ids() const { return token_ids_; }  // empty: unknown
  const std::vector<std::string>& pieces() const { return pieces_; }    // empty: unknown
  const std::string& model() const { return model_; }                   // empty: unknown
  const std::map<int, Layer>& layers() const { return layers_; }

  // Shows all layers to the observer, as a forward pass would: panels of 64 rows, heads in ascending order, no outputs
  // and no value norms. Errors: numeric (a weight or λ that is not finite), format (a weight above the diagonal or
  // outside the window that is not 0), both naming layer, head, row and key; whatever the observer throws.
  void replay(attention::Observer& observer) const;

 private:
  MapsFile(std::string name, const formats::SafetensorsFile& file);
  void read_header(const formats::SafetensorsFile& file);
  void read_metadata(const std::map<std::string, std::string>& metadata);
  void check_layers();
  void fill_panel(attention::MapPanel& panel, const Layer& layer) const;

  std::string name_;
  int64_t tokens_ = 0;
  std::vector<int32_t> token_ids_;
  std::vector<std::string> pieces_;
  std::string model_;
  std::map<int, Layer> layers_;
};

// The analysis of a maps file: one window. Layers and heads keep the numbers that they have in the file.
AnalysisResults analyze_maps(const MapsFile& file, AnalysisOptions options);

// Writes maps files: an observer of one forward pass of `tokens` tokens. What it sees goes to a file beside the target
// at once; memory holds one layer. Not thread-safe.
class MapsWriter : public attention::Observer {
 public:
  // `layers`, `heads`: which ones; empty: all. Error: io.
  MapsWriter(std::filesystem::path path, int64_t tokens, std::set<int> layers = {}, std::set<int> heads = {});
  ~MapsWriter() override;

  bool wants(int layer) const override { return layers_.empty() || layers_.contains(layer); }
  void on_maps(const attention::MapPanel& panel) override;
  void end_layer(int layer) override;

  struct Written {
    std::vector<int> layers, heads;
    int64_t tokens = 0;
    uint64_t bytes = 0;
  };
  // Completes the file; before this nothing stands under its name. `ids`, `pieces`: as many as tokens, or empty; pieces
  // that are not UTF-8 are written with U+FFFD in place of the bad bytes. Errors: io; usage (a layer or head that was
  // asked for and never seen, lengths that differ); shape (rows missing).
  Written finish(const std::vector<int32_t>& ids, const std::vector<std::string>& pieces, const std::string& model);

 private:
  struct Part {
    std::string name;
    Shape shape;
    size_t offset = 0;
  };
  void begin_layer(const attention::MapPanel& panel);
  void spool(std::string name, Shape shape, const Buffer<float>& values, size_t first);

  std::filesystem::path path_, spool_path_;
  int64_t tokens_;
  std::set<int> layers_, heads_, seen_layers_, seen_heads_;
  std::map<int, int64_t> windows_;
  std::unique_ptr<AtomicFile> spool_;
  std::vector<Part> parts_;
  int layer_ = -1;
  int64_t rows_ = 0;
  std::vector<int> kept_;  // the heads of this layer that are written
  bool noise_ = false;
  Buffer<float> positive_map_, noise_map_, lambda_;  // [kept, N, N], [kept, N]
};

}  // namespace unchain::analysis
