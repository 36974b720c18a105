// MapsWriter: layers go to a spool file as they come, because the header of a safetensors file, which stands first,
// needs all shapes; finish() maps the spool and writes the file proper.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/maps_file.h"
#include "base/check.h"

namespace unchain::analysis {

MapsWriter::MapsWriter(std::filesystem::path path, int64_t tokens, std::set<int> layers, std::set<int> heads)
    : path_(std::move(path)), tokens_(tokens), layers_(std::move(layers)), heads_(std::move(heads)) {
  if (tokens < 1) fail(ErrorCode::usage, "capture: {} tokens, expected at least 1", tokens);
  spool_path_ = unfinished(path_, "spool");
  spool_ = std::make_unique<AtomicFile>(spool_path_);
}

MapsWriter::~MapsWriter() = default;

void MapsWriter::begin_layer(const attention::MapPanel& panel) {
  layer_ = panel.layer;
  rows_ = 0;
  noise_ = panel.noise != nullptr;
  kept_.clear();
  for (int h = 0; h < panel.heads; ++h) {
    if (heads_.empty() || heads_.contains(h)) kept_.push_back(h);
  }
  seen_heads_.insert(kept_.begin(), kept_.end());
  if (panel.window > 0) windows_[layer_] = panel.window;
  const size_t rows = kept_.size() * static_cast<size_t>(tokens_);
  positive_map_.reserve(rows * static_cast<size_t>(tokens_));
  if (!noise_) return;
  noise_map_.reserve(rows * static_cast<size_t>(tokens_));
  lambda_.reserve(rows);
}

void MapsWriter::on_maps(const attention::MapPanel& panel) {
  if (layer_ < 0) begin_layer(panel);
  if (panel.layer != layer_ || panel.first_row != rows_ || panel.first_row + panel.rows > tokens_) {
    fail(ErrorCode::shape, "capture: layer {}: rows {} … {}, expected layer {}, rows from {}, within {} tokens",
         panel.layer, panel.first_row, panel.first_row + panel.rows - 1, layer_, rows_, tokens_);
  }
  for (size_t k = 0; k < kept_.size(); ++k) {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const int64_t visible = panel.first_row + r + 1;
      const int64_t row = static_cast<int64_t>(k) * tokens_ + panel.first_row + r;
      const auto copy = [&](const float* from, float* to) {
        std::fill(std::copy_n(from, visible, to), to + tokens_, 0.0f);
      };
      copy(panel.positive_row(kept_[k], r), positive_map_.data() + row * tokens_);
      if (!noise_) continue;
      copy(panel.noise_row(kept_[k], r), noise_map_.data() + row * tokens_);
      lambda_[static_cast<size_t>(row)] = panel.lambda[kept_[k] * panel.rows + r];
    }
  }
  rows_ += panel.rows;
}

void MapsWriter::spool(std::string name, Shape shape, const Buffer<float>& values, size_t first) {
  const size_t count = static_cast<size_t>(element_count(shape));
  parts_.push_back({std::move(name), std::move(shape), spool_->position()});
  spool_->write(values.data() + first, count * sizeof(float));
}

void MapsWriter::end_layer(int layer) {
  if (layer != layer_ || rows_ != tokens_) {
    fail(ErrorCode::shape, "capture: layer {} ended after {} of {} rows", layer, rows_, tokens_);
  }
  const size_t map = static_cast<size_t>(tokens_ * tokens_);
  for (size_t k = 0; k < kept_.size(); ++k) {
    const std::string head = fmt::format("layer.{}.head.{}.", layer, kept_[k]);
    spool(head + "positive", {tokens_, tokens_}, positive_map_, k * map);
    if (noise_) spool(head + "noise", {tokens_, tokens_}, noise_map_, k * map);
  }
  if (noise_ && !kept_.empty())
    spool(fmt::format("layer.{}.lambda", layer), {static_cast<int64_t>(kept_.size()), tokens_}, lambda_, 0);
  seen_layers_.insert(layer);
  layer_ = -1;
}

MapsWriter::Written MapsWriter::finish(const std::vector<int32_t>& ids, const std::vector<std::string>& pieces,
                                       const std::string& model) {
  const size_t tokens = static_cast<size_t>(tokens_);
  if ((!ids.empty() && ids.size() != tokens) || (!pieces.empty() && pieces.size() != tokens)) {
    fail(ErrorCode::usage, "capture: {} ids and {} pieces for {} tokens", ids.size(), pieces.size(), tokens_);
  }
  for (const int layer : layers_) {
    if (!seen_layers_.contains(layer))
      fail(ErrorCode::usage, "capture: layer {} was asked for, but the model has none of that number", layer);
  }
  for (const int head : heads_) {
    if (!seen_heads_.contains(head))
      fail(ErrorCode::usage, "capture: head {} was asked for, but no layer has one of that number", head);
  }
  spool_->commit();
  spool_.reset();
  const MappedFile spooled = MappedFile::open(spool_path_);
  std::filesystem::remove(spool_path_);  // the map keeps the bytes

  std::vector<Tensor> tensors;
  for (const Part& part : parts_) {
    const auto bytes = spooled.bytes().subspan(part.offset, static_cast<size_t>(byte_count(DType::f32, part.shape)));
    tensors.push_back({part.name, DType::f32, part.shape, bytes, spooled.owner()});
  }
  if (!ids.empty()) tensors.push_back({"tokens", DType::i32, {tokens_}, std::as_bytes(std::span(ids)), nullptr});
  std::map<std::string, std::string> metadata = {{"format", "unchain maps 1"}};
  const auto dump = [](const nlohmann::json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (!model.empty()) metadata["model"] = model;
  if (!pieces.empty()) metadata["pieces"] = dump(pieces);
  if (!windows_.empty()) {
    nlohmann::json windows = nlohmann::json::object();
    for (const auto& [layer, window] : windows_) windows[std::to_string(layer)] = window;
    metadata["windows"] = dump(windows);
  }
  formats::write_safetensors(path_, tensors, metadata);
  return {{seen_layers_.begin(), seen_layers_.end()},
          {seen_heads_.begin(), seen_heads_.end()},
          tokens_,
          std::filesystem::file_size(path_)};
}

}  // namespace unchain::analysis
