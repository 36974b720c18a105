#include "analysis/maps_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "formats/convert.h"
#include "formats/json.h"
#include "formats/text.h"

namespace unchain::analysis {
namespace {

constexpr int64_t kMostTokens = 65536;
constexpr int64_t kReplayRows = 64;

// Reads "layer.", a number, and so on from the front of a name; each takes what it reads off.
bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || number < 0 || digits == 0 || (text[0] == '0' && digits > 1)) return false;
  text.remove_prefix(digits);
  return true;
}

struct MapName {
  int layer = -1, head = -1;
  std::string_view part;  // positive, noise, lambda
};

// Nothing for a name that is not one of a maps file.
std::optional<MapName> parse_name(std::string_view text) {
  MapName name;
  if (!take(text, "layer.") || !take_number(text, name.layer) || !take(text, ".")) return std::nullopt;
  if (text == "lambda") {
    name.part = text;
    return name;
  }
  if (!take(text, "head.") || !take_number(text, name.head) || !take(text, ".")) return std::nullopt;
  if (text != "positive" && text != "noise") return std::nullopt;
  name.part = text;
  return name;
}

void check_type(const std::string& file, const Tensor& tensor) {
  switch (tensor.type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f64:
      return;
    default:
      fail(ErrorCode::unsupported, "{}: {}: element type {}, expected f32, f16, bf16 or f64", file, tensor.name,
           info(tensor.type).name);
  }
}

}  // namespace

MapsFile MapsFile::open(const std::filesystem::path& path) {
  return {path.string(), formats::SafetensorsFile::open(path)};
}

MapsFile MapsFile::parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, const std::string& name) {
  return {name, formats::SafetensorsFile::parse(bytes, std::move(owner), name)};
}

MapsFile::MapsFile(std::string name, const formats::SafetensorsFile& file) : name_(std::move(name)) {
  read_header(file);
  check_layers();
  read_metadata(file.metadata());
}

void MapsFile::read_header(const formats::SafetensorsFile& file) {
  const Tensor* ids = nullptr;
  std::map<int, std::map<int, std::array<Tensor, 2>>> maps;  // layer, head, positive and noise
  for (const Tensor& tensor : file.tensors()) {
    if (tensor.name == "tokens") {
      ids = &tensor;
      continue;
    }
    const auto name = parse_name(tensor.name);
    if (!name) {
      fail(ErrorCode::format,
           "{}: tensor '{}', expected layer.L.head.H.positive, layer.L.head.H.noise, layer.L.lambda or tokens", name_,
           formats::printable(tensor.name));
    }
    check_type(name_, tensor);
    if (name->part == "lambda") {
      layers_[name->layer].lambda = tensor;
      continue;
    }
    if (tensor.shape.size() != 2 || tensor.shape[0] != tensor.shape[1] || tensor.shape[0] < 1) {
      fail(ErrorCode::format, "{}: {}: shape {}, expected [N, N]: one row a query, one column a key", name_,
           tensor.name, to_string(tensor.shape));
    }
    if (tokens_ == 0) tokens_ = tensor.shape[0];
    if (tensor.shape[0] != tokens_) {
      fail(ErrorCode::format,
           "{}: {}: shape {}, but other maps of the file have {} tokens; write one file for each text", name_,
           tensor.name, to_string(tensor.shape), tokens_);
    }
    maps[name->layer][name->head][name->part == "noise"] = tensor;
  }
  if (tokens_ == 0)
    fail(ErrorCode::format, "{}: no attention map, expected tensors layer.L.head.H.positive [N, N]", name_);
  if (tokens_ > kMostTokens)
    fail(ErrorCode::shape, "{}: {} tokens, at most {} can be analysed", name_, tokens_, kMostTokens);
  for (auto& [layer, heads] : maps) {
    Layer& out = layers_[layer];
    for (auto& [head, parts] : heads) {
      if (parts[0].name.empty())
        fail(ErrorCode::format, "{}: layer {} head {}: a noise map without its positive map", name_, layer, head);
      out.heads.push_back(head);
      out.positive.push_back(parts[0]);
      if (!parts[1].name.empty()) out.noise.push_back(parts[1]);
    }
  }
  if (!ids) return;
  if (ids->type != DType::i32 || ids->shape != Shape{tokens_}) {
    fail(ErrorCode::format, "{}: tokens: {} {}, expected i32 [{}]", name_, info(ids->type).name, to_string(ids->shape),
         tokens_);
  }
  const auto* first = reinterpret_cast<const int32_t*>(ids->bytes.data());
  token_ids_.assign(first, first + tokens_);
}

void MapsFile::check_layers() {
  for (const auto& [number, layer] : layers_) {
    const int64_t heads = static_cast<int64_t>(layer.heads.size());
    if (heads == 0) fail(ErrorCode::format, "{}: layer {}: lambda without maps", name_, number);
    if (!layer.noise.empty() && layer.noise.size() != layer.positive.size()) {
      fail(ErrorCode::format, "{}: layer {}: {} of {} heads have a noise map, expected all or none", name_, number,
           layer.noise.size(), heads);
    }
    if (layer.noise.empty() == layer.lambda.has_value()) {
      fail(ErrorCode::format, "{}: layer {}: {}", name_, number,
           layer.lambda ? "lambda without noise maps" : fmt::format("noise maps without layer.{}.lambda", number));
    }
    if (layer.lambda && layer.lambda->shape != Shape{heads} && layer.lambda->shape != Shape{heads, tokens_}) {
      fail(ErrorCode::format, "{}: layer.{}.lambda: shape {}, expected [{}] (heads) or [{}, {}] (heads, tokens)", name_,
           number, to_string(layer.lambda->shape), heads, heads, tokens_);
    }
  }
}

void MapsFile::read_metadata(const std::map<std::string, std::string>& metadata) {
  if (const auto model = metadata.find("model"); model != metadata.end()) model_ = model->second;
  if (const auto text = metadata.find("pieces"); text != metadata.end()) {
    const auto pieces = formats::parse_json(text->second, name_ + ": metadata pieces");
    const bool strings =
        pieces.is_array() && std::all_of(pieces.begin(), pieces.end(), [](const auto& p) { return p.is_string(); });
    if (!strings || pieces.size() != static_cast<size_t>(tokens_)) {
      fail(ErrorCode::format, "{}: metadata pieces: expected a JSON list of {} strings, one for each token", name_,
           tokens_);
    }
    pieces_ = pieces.get<std::vector<std::string>>();
  }
  if (const auto text = metadata.find("windows"); text != metadata.end()) {
    const auto windows = formats::parse_json(text->second, name_ + ": metadata windows");
    if (!windows.is_object())
      fail(ErrorCode::format, "{}: metadata windows: expected a JSON object, layer to window", name_);
    for (const auto& [key, value] : windows.items()) {
      std::string_view rest = key;
      int layer = 0;
      if (!take_number(rest, layer) || !rest.empty() || !layers_.contains(layer) || !value.is_number_integer() ||
          value < 0 || value > INT32_MAX) {
        fail(ErrorCode::format,
             "{}: metadata windows: entry '{}', expected the number of a layer of the file and its window in tokens "
             "(0: none)",
             name_, formats::printable(key));
      }
      layers_[layer].window = value.get<int64_t>();
    }
  }
}

void MapsFile::fill_panel(attention::MapPanel& panel, const Layer& layer) const {
  parallel_for(panel.heads, [&](int64_t h) {
    const size_t index = static_cast<size_t>(h);
    const auto read_row = [&](const Tensor& tensor, float* out, int64_t r) {
      const int64_t row = panel.first_row + r;
      formats::decode(tensor, row * tokens_, tokens_, out);
      for (int64_t j = 0; j < tokens_; ++j) {
        const bool visible = j <= row && j >= panel.first_key(r);
        if (visible && !std::isfinite(out[j])) {
          fail(ErrorCode::numeric, "{}: {}: row {} key {}: {}, expected a finite number", name_, tensor.name, row, j,
               out[j]);
        }
        if (!visible && out[j] != 0) {
          fail(ErrorCode::format, "{}: {}: row {} key {}: {}, expected 0: a row sees no {}", name_, tensor.name, row, j,
               out[j],
               j > row ? "later token (causal maps only; one row a query, one column a key)"
                       : "token before its window");
        }
      }
    };
    for (int64_t r = 0; r < panel.rows; ++r) {
      read_row(layer.positive[index], panel.positive_row(static_cast<int>(h), r), r);
      if (!panel.noise) continue;
      read_row(layer.noise[index], panel.noise_row(static_cast<int>(h), r), r);
      float* lambda = panel.lambda + h * panel.rows + r;
      formats::decode(*layer.lambda, layer.lambda->shape.size() == 1 ? h : h * tokens_ + panel.first_row + r, 1,
                      lambda);
      if (!std::isfinite(*lambda)) {
        fail(ErrorCode::numeric, "{}: {}: head {} row {}: {}, expected a finite number", name_, layer.lambda->name,
             layer.heads[index], panel.first_row + r, *lambda);
      }
    }
  });
}

void MapsFile::replay(attention::Observer& observer) const {
  Buffer<float> positive, noise, lambda;
  for (const auto& [number, layer] : layers_) {
    if (!observer.wants(number)) continue;
    const size_t heads = layer.heads.size();
    const size_t room = heads * static_cast<size_t>(kReplayRows * tokens_);
    positive.reserve(room);
    if (layer.lambda) {
      noise.reserve(room);
      lambda.reserve(heads * static_cast<size_t>(kReplayRows));
    }
    attention::MapPanel panel;
    panel.layer = number;
    panel.heads = panel.kv_heads = static_cast<int>(heads);
    panel.window = layer.window;
    panel.positive = positive.data();
    panel.noise = layer.lambda ? noise.data() : nullptr;
    panel.lambda = layer.lambda ? lambda.data() : nullptr;
    panel.row_stride = tokens_;
    panel.head_stride = kReplayRows * tokens_;
    for (panel.first_row = 0; panel.first_row < tokens_; panel.first_row += kReplayRows) {
      panel.rows = std::min(kReplayRows, tokens_ - panel.first_row);
      panel.keys = panel.first_row + panel.rows;
      fill_panel(panel, layer);
      observer.on_maps(panel);
    }
    observer.end_layer(number);
  }
}

AnalysisResults analyze_maps(const MapsFile& file, AnalysisOptions options) {
  MapAnalyzer analyzer(std::move(options));
  analyzer.begin_window(file.tokens(), file.token_ids(), file.pieces());
  file.replay(analyzer);
  analyzer.end_window();
  AnalysisResults results = analyzer.results();
  for (LayerResults& layer : results.layers) {
    for (HeadResults& head : layer.heads)
      head.head = file.layers().at(layer.layer).heads[static_cast<size_t>(head.head)];
  }
  for (auto* extremes : {&results.highest, &results.lowest}) {
    for (auto& extreme : *extremes) {
      if (extreme) extreme->head = file.layers().at(extreme->layer).heads[static_cast<size_t>(extreme->head)];
    }
  }
  return results;
}

}  // namespace unchain::analysis
