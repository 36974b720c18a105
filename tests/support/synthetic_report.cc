#include "support/synthetic_report.h"

#include <cmath>
#include <random>

namespace unchain::report {
namespace {

using nlohmann::json;

json measured(double mean, double spread) {
  return {{"mean", mean}, {"median", mean * 1.01}, {"low", mean - spread}, {"high", mean + spread}};
}

// Every measure inside loses its interval.
void drop_intervals(json& value) {
  if (value.is_object() && value.contains("low")) value["low"] = value["high"] = nullptr;
  if (!value.is_structured()) return;
  for (auto& inner : value) drop_intervals(inner);
}

json ranks(double entropy, const std::string& prefix, json head) {
  head[prefix + "rank_entropy"] = measured(entropy, entropy * 0.03);
  head[prefix + "rank_entropy_squared"] = measured(entropy * 0.6, entropy * 0.02);
  head[prefix + "rank_stable"] = measured(1 + entropy * 0.1, 0.05);
  head[prefix + "rank_r90"] = measured(entropy * 1.4, entropy * 0.05);
  head[prefix + "rank_r99"] = measured(entropy * 2.1, entropy * 0.05);
  return head;
}

// A head between a sink (s = 1), local (l = 1) and spread weights.
std::vector<double> softmax_row(int i, double s, double l, std::mt19937& rng) {
  std::normal_distribution<double> noise(0, 1);
  std::vector<double> row(static_cast<size_t>(i) + 1);
  double sum = 0;
  for (int j = 0; j <= i; ++j) {
    const double logit = (j == 0 ? 6 * s : 0) - 3 * l * std::log1p(i - j) + 1.2 * noise(rng);
    sum += row[static_cast<size_t>(j)] = std::exp(logit);
  }
  for (double& w : row) w /= sum;
  return row;
}

const std::vector<std::string> kWords = {
    "The",    " cat",   " sat", " on",    " the",  " mat",  ",",   " and", " then",  " it",     " looked", " at",
    " the",   " large", "\n",   " green", " door", ".",     " No", "body", " had",   " opened", " that",   " door",
    " since", " 19",    "47",   ",",      " the",  " year", " of", " the", " flood", ".\n\n"};

}  // namespace

std::string plain_base64(const std::vector<unsigned char>& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bits, out;
  for (const unsigned char byte : bytes) {
    for (int b = 7; b >= 0; --b) bits += (byte >> b & 1) != 0 ? '1' : '0';
  }
  while (bits.size() % 6 != 0) bits += '0';
  for (size_t i = 0; i < bits.size(); i += 6) out += digits[std::stoul(bits.substr(i, 6), nullptr, 2)];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

Synthetic synthetic(int layers, int heads, int tokens) {
  std::mt19937 rng(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  Synthetic out;
  out.results = {
      {"schema", 1},
      {"command", "unchain analyze SmolLM2-135M-Instruct.Q4_1.gguf wiki.test.raw -o out"},
      {"version", "0.1.0"},
      {"windows", {512, 512, 512, 512}},
      {"settings", {{"text", "wiki.test.raw"}, {"window", 512}, {"windows", 8}, {"dtype", "bf16"}, {"threads", 2}}},
      {"model",
       {{"name", "SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"architecture", "llama"},
        {"attention", "softmax"},
        {"parameters", 134515008},
        {"layers", layers},
        {"heads", heads},
        {"kv_heads", 3},
        {"head_dim", 64},
        {"vocabulary", 49152}}}};
  json maps = json::array(), spectra = json::array(), entropies = json::array(), weights = json::array();
  for (int l = 0; l < layers; ++l) {
    json layer = {{"layer", l}, {"window", 0}, {"heads", json::array()}, {"lambda", nullptr}};
    const double depth = layers > 1 ? static_cast<double>(l) / (layers - 1) : 0;
    layer["cosine_distance"] = heads > 1 ? measured(0.75 - 0.55 * depth + 0.05 * uniform(rng), 0.02) : json();
    layer["cka"] = heads > 1 ? measured(0.1 + 0.4 * depth * depth + 0.05 * uniform(rng), 0.015) : json();
    json layer_maps, layer_spectra, layer_entropies, layer_weights;
    for (int h = 0; h < heads; ++h) {
      const double sink = std::min(1.0, std::pow(depth, 0.6) * (0.55 + 0.55 * uniform(rng)));
      const double local = uniform(rng);
      const double entropy = std::max(0.03, 0.9 - 0.65 * sink - 0.3 * local * uniform(rng));
      json head = {{"head", h},
                   {"entropy_normalised", measured(entropy, 0.01)},
                   {"entropy", measured(entropy * 5.2, 0.05)},
                   {"row_sum", measured(1, 0)},
                   {"sink_mass", measured(0.95 * sink, 0.02)},
                   {"sink_mass_value_weighted", measured(0.3 * sink * uniform(rng), 0.01)},
                   {"row_sum_without_first", measured(1 - 0.95 * sink, 0.02)},
                   {"top_mass_1", measured(std::min(1.0, 0.1 + 0.85 * sink), 0.01)},
                   {"top_mass_5", measured(std::min(1.0, 0.3 + 0.68 * sink), 0.01)},
                   {"top_mass_20", measured(std::min(1.0, 0.5 + 0.49 * sink), 0.01)},
                   {"sparsity", measured(0.2 + 0.7 * sink, 0.01)},
                   {"context_rms", measured(0.2 + 0.7 * sink, 0.01)},
                   {"negative_share", nullptr},
                   {"negative_mass", nullptr},
                   {"induction_mass", measured(std::pow(uniform(rng), 6), 0.01)}};
      const double rank = 40 + 150 * (1 - sink) * (0.5 + local / 2);
      head = ranks(rank, "", head);
      head = ranks(rank * 0.35, "block_", head);
      head = ranks(70.5, "uniform_", head);
      json permuted = ranks(rank * 1.8, "permuted_", json::object());  // of the first window alone
      drop_intervals(permuted);
      head.update(permuted);
      layer["heads"].push_back(head);

      std::vector<unsigned char> codes;
      for (int i = 0; i < tokens; ++i) {
        for (const double w : softmax_row(i, sink, local, rng))
          codes.push_back(static_cast<unsigned char>(std::lround(255 * std::sqrt(w))));
      }
      layer_maps.push_back(plain_base64(codes));
      json values = json::array();
      for (int k = 0; k < 128; ++k) values.push_back(std::exp(-k / (4 + 30 * (1 - sink))) * (k == 0 ? 1 : 0.5));
      layer_spectra.push_back(values);
      json counts = json::array(), sizes = json::array();
      for (int b = 0; b < 40; ++b)
        counts.push_back(std::lround(4000 * std::exp(-std::pow((b / 40.0 - entropy) / 0.12, 2))));
      for (int b = 0; b < 48; ++b)
        sizes.push_back(std::lround(90000 * std::exp(-std::pow((b / 8.0 - 3 + 2 * (1 - sink) - 1) / 1.1, 2))));
      layer_entropies.push_back(counts);
      layer_weights.push_back(sizes);
    }
    out.results["layers"].push_back(layer);
    maps.push_back(layer_maps);
    spectra.push_back(layer_spectra);
    entropies.push_back(layer_entropies);
    weights.push_back(layer_weights);
  }
  json entropy_edges, weight_edges, pieces;
  for (int b = 0; b <= 40; ++b) entropy_edges.push_back(b / 40.0);
  for (int b = 0; b <= 48; ++b) weight_edges.push_back(b / 8.0 - 6);
  for (int i = 0; i < tokens; ++i) pieces.push_back(kWords[static_cast<size_t>(i) % kWords.size()]);
  out.extras = {{"tokens", pieces},
                {"excerpt", {{"size", tokens}, {"scale", "sqrt"}, {"maps", maps}}},
                {"spectra", spectra},
                {"histograms",
                 {{"entropy_normalised", {{"edges", entropy_edges}, {"counts", entropies}}},
                  {"log10_weight", {{"edges", weight_edges}, {"counts", weights}}}}}};
  return out;
}

Synthetic of_one_window(Synthetic data) {
  drop_intervals(data.results);
  data.results["windows"] = {512};
  return data;
}

Synthetic hostile() {
  Synthetic out = synthetic(3, 2, 12);
  auto& layers = out.results["layers"];
  layers[0]["heads"][0]["entropy"] = measured(1e300, 1e299);
  layers[0]["heads"][1]["sink_mass"] = nullptr;
  layers[1]["heads"][0] = json::object();
  layers[1]["heads"][1] = {{"sink_mass", {{"mean", -1e-12}, {"median", nullptr}, {"low", nullptr}, {"high", nullptr}}}};
  layers[2]["heads"] = json::array();
  layers[0]["cka"] = measured(-0.02, 0.05);
  layers[0]["heads"][0]["<b>unknown</b>"] = measured(-3, 1);
  layers[0]["heads"][0]["negative_mass"] = measured(0.2, 0.01);
  out.results["model"]["name"] =
      "</title><script>document.documentElement.dataset.errors='model name'</script>{{data}}";
  out.results["settings"]["text"] = "<img src=x onerror=\"document.documentElement.dataset.errors='settings'\">";
  out.results["command"] = "unchain analyze '\xff\xfe' </script>";
  out.extras["tokens"] = {"</script><script>document.documentElement.dataset.errors='token'</script>",
                          "<b>bold</b>",
                          "<a href=\"javascript:alert(1)\">x</a>",
                          "&lt;&amp;",
                          "%{x}%{customdata[0]}",
                          "<!--",
                          "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb",
                          "\xe2\x80\xae"
                          "abc",
                          std::string("\0\x01\x7f", 3),
                          "\xff\xfe",
                          "$x^2$",
                          "="};
  out.extras["excerpt"]["maps"][1][0] = nullptr;
  out.extras["excerpt"]["maps"][0][1] = "AAAA";  // too short for its size
  out.extras["excerpt"]["signs"] = {{plain_base64({0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0}), nullptr}, nullptr, nullptr};
  out.extras["spectra"][0] = nullptr;
  out.extras["spectra"][1][0] = {0.0, 0.0};
  out.extras["histograms"]["entropy_normalised"]["counts"][2] = nullptr;
  return out;
}

}  // namespace unchain::report
