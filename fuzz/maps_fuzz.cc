// Any bytes as a file of attention maps: an Error, or maps that keep what the reader promises and, if they are small,
// an analysis whose every figure can be written.
#include <cmath>
#include <cstdlib>

#include "analysis/maps_file.h"
#include "analysis/results_json.h"
#include "base/thread.h"
#include "unchain/error.h"

namespace {

using namespace unchain::analysis;

// Rows come in order and are finite, with nothing outside the window.
class Checker : public unchain::attention::Observer {
 public:
  explicit Checker(const MapsFile& file) : file_(file) {}
  void on_maps(const unchain::attention::MapPanel& panel) override {
    const MapsFile::Layer& layer = file_.layers().at(panel.layer);
    if (panel.first_row != rows_ || panel.keys != panel.first_row + panel.rows) std::abort();
    if (static_cast<size_t>(panel.heads) != layer.heads.size() || panel.window != layer.window) std::abort();
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        check(panel.positive_row(h, r), panel.first_row + r, layer.window);
        if (!panel.noise) continue;
        check(panel.noise_row(h, r), panel.first_row + r, layer.window);
        if (!std::isfinite(panel.lambda[h * panel.rows + r])) std::abort();
      }
    }
    rows_ += panel.rows;
  }
  void end_layer(int /*layer*/) override {
    if (rows_ != file_.tokens()) std::abort();
    rows_ = 0;
  }

 private:
  static void check(const float* row, int64_t position, int64_t window) {
    for (int64_t j = 0; j <= position; ++j) {
      if (!std::isfinite(row[j])) std::abort();
      if (window > 0 && j <= position - window && row[j] != 0) std::abort();
    }
  }
  const MapsFile& file_;
  int64_t rows_ = 0;
};

void use(const MapsFile& file) {
  const auto tokens = static_cast<size_t>(file.tokens());
  if (tokens == 0 || file.layers().empty()) std::abort();
  if (!file.token_ids().empty() && file.token_ids().size() != tokens) std::abort();
  if (!file.pieces().empty() && file.pieces().size() != tokens) std::abort();
  Checker checker(file);
  file.replay(checker);
  size_t heads = 0;
  for (const auto& [number, layer] : file.layers()) heads += layer.heads.size();
  if (tokens > 24 || heads > 8) return;  // ranks take time
  const AnalysisResults results = analyze_maps(file, {});
  (void)results_json(results, {}, {}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  (void)page_extras(results).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool one_thread = (unchain::set_threads(1), true);  // an input shall always take the same way
  (void)one_thread;
  try {
    use(MapsFile::parse({reinterpret_cast<const std::byte*>(data), size}, nullptr, "fuzz.safetensors"));
  } catch (const unchain::Error& error) {
    if (error.code() == unchain::ErrorCode::internal) std::abort();
  }
  return 0;
}
