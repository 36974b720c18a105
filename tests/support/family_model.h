// Small models with every member's attention, and a folder of their weights.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "formats/safetensors.h"
#include "model/save_config.h"
#include "model/trainable.h"

namespace unchain::test {

// Names of presets, "PRESET, element gates", and "fixed_diff, calibrated".
inline const std::vector<std::string>& members() {
  static const std::vector<std::string> all = {"softmax",
                                               "diff_v1",
                                               "diff_v2",
                                               "shared_diff",
                                               "grouped_diff",
                                               "lowrank_diff",
                                               "fixed_diff",
                                               "gated",
                                               "off_by_one",
                                               "sink",
                                               "gated, element gates",
                                               "diff_v1, element gates",
                                               "fixed_diff, calibrated"};
  return all;
}

// Two layers, grouped heads.
inline model::Config family_config(const std::string& member) {
  model::Config c;
  c.architecture = model::find_architecture("llama");
  c.vocabulary = 50;
  c.context = 64;
  c.width = 24;
  c.feed_forward = 40;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim = 6;
  c.attention_scale = 1 / std::sqrt(6.0f);
  c.norm_eps = 1e-5f;
  c.ropes.emplace_back();
  c.layers.resize(2);
  // shared_diff multiplies two such matrices over a rank of 16: with 0.3 its scores are so large that softmax jumps.
  c.initializer_range = member == "shared_diff" ? 0.15 : 0.3;
  c.attention = attention::preset(member.substr(0, member.find(',')));
  if (member.ends_with(", element gates")) c.attention.gate = attention::Gate::element;
  if (member.ends_with(", calibrated")) {
    c.attention.calibrated = true;
    c.attention.rank = 3;
  }
  return c;
}

// Numbers that begin at 0 or 1 move away from there, so that nothing is flat by accident.
inline void stir(model::Trainable& m) {
  Rng rng(3);
  for (model::Parameter& p : m.parameters()) {
    const double middle = p.frozen ? 0.5 : 0;  // a calibrated map's rows sum to more than its floor
    for (float& x : p.value) x += static_cast<float>(middle + 0.1 * rng.normal());
  }
}

// config.json and model.safetensors, f32.
inline void write_folder(const std::filesystem::path& folder, model::Trainable& m) {
  std::filesystem::create_directories(folder);
  write_text(folder / "config.json", model::config_json(m.config()));
  std::vector<Tensor> tensors;
  for (const model::Parameter& p : m.parameters()) {
    const auto data = allocate_large(p.value.size_bytes());
    std::memcpy(data.get(), p.value.data(), p.value.size_bytes());
    tensors.push_back({p.name, DType::f32, p.shape, {data.get(), p.value.size_bytes()}, data});
  }
  formats::write_safetensors_folder(folder, tensors, {{"format", "pt"}});
}

}  // namespace unchain::test
