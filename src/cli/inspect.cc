#include <map>

#include "base/check.h"
#include "cli/options.h"
#include "report/table.h"

namespace unchain::cli {
namespace {

std::string describe_rope(const model::Config& config) {
  std::string text;
  for (const model::RopeConfig& rope : config.ropes) {
    text += fmt::format("{}base {:g}", text.empty() ? "" : ", ", rope.theta);
    if (rope.scaling == model::RopeConfig::Scaling::linear) text += fmt::format(" (linear, factor {:g})", rope.factor);
    if (rope.scaling == model::RopeConfig::Scaling::llama3 || !rope.divisors.empty()) text += " (llama3)";
  }
  return text;
}

void run(const Common& common, bool tensors) {
  prepare(common);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const model::Config& c = file.config();
  int64_t parameters = 0;
  std::map<std::string, int64_t> dtype_counts;
  for (const Tensor& tensor : file.tensors()) {
    ++dtype_counts[std::string(info(tensor.type).name)];
    if (tensor.name != "rope_freqs.weight") parameters += tensor.elements();
  }
  int64_t windowed = 0, window = 0;
  for (const model::LayerConfig& layer : c.layers) {
    windowed += layer.window > 0;
    window = std::max(window, layer.window);
  }
  std::string tokenizer = "none";
  std::vector<std::string> notes;
  try {
    const auto opened = open_tokenizer(file, common, "only --ids can be given to this model");
    tokenizer = opened->kind;
    notes = opened->notes;
  } catch (const Error& error) {
    tokenizer = fmt::format("not readable: {}", error.what());
  }
  nlohmann::json result = {{"architecture", c.architecture->name},
                           {"attention", c.attention.preset},
                           {"parameters", parameters},
                           {"layers", c.layer_count()},
                           {"heads", c.heads},
                           {"kv_heads", c.kv_heads},
                           {"head_dim", c.head_dim},
                           {"width", c.width},
                           {"feed_forward", c.feed_forward},
                           {"vocabulary", c.vocabulary},
                           {"context", c.context},
                           {"tied_embeddings", c.tied},
                           {"window", window},
                           {"windowed_layers", windowed},
                           {"tokenizer", tokenizer},
                           {"dtype_counts", dtype_counts},
                           {"unused_tensors", file.unused_tensors()}};
  report::TextTable table;
  table.column("property").column("value");
  table.row({"architecture", std::string(c.architecture->name)});
  table.row({"attention", windowed ? fmt::format("{}, {} of {} layers see a window of {}", c.attention.preset, windowed,
                                                 c.layer_count(), window)
                                   : c.attention.preset});
  table.row({"parameters", fmt::format("{} ({:.1f} M)", parameters, static_cast<double>(parameters) * 1e-6)});
  table.row({"layers", std::to_string(c.layer_count())});
  table.row({"heads", fmt::format("{} query, {} key/value, width {}", c.heads, c.kv_heads, c.head_dim)});
  table.row({"width", fmt::format("{}, feed-forward {}", c.width, c.feed_forward)});
  table.row(
      {"vocabulary", fmt::format("{}, output {}", c.vocabulary, c.tied ? "tied to the embedding" : "of its own")});
  table.row({"context", std::to_string(c.context)});
  table.row({"rotary position", describe_rope(c)});
  table.row({"tokenizer", report::printable(tokenizer)});
  std::string types;
  for (const auto& [name, count] : dtype_counts)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, name);
  table.row({"tensors", types});
  std::string text = table.text();
  for (const std::string& note : notes) text += fmt::format("note: {}\n", report::printable(note));
  for (const std::string& name : file.unused_tensors())
    text += fmt::format("warning: tensor {} is not used\n", report::printable(name));
  if (tensors) {
    report::TextTable list;
    list.column("tensor").column("type").column("shape", report::TextTable::Align::right);
    nlohmann::json rows = nlohmann::json::array();
    for (const Tensor& tensor : file.tensors()) {
      list.row({report::printable(tensor.name), std::string(info(tensor.type).name), to_string(tensor.shape)});
      rows.push_back({{"name", tensor.name}, {"type", info(tensor.type).name}, {"shape", tensor.shape}});
    }
    text += "\n" + list.text();
    result["tensors"] = rows;
  }
  print_result(common, result, text);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* command = app.add_subcommand("inspect", "architecture, sizes, tokenizer and tensors of a model");
  auto common = std::make_shared<Common>();
  auto tensors = std::make_shared<bool>(false);
  add_model(*command, *common);
  command->add_flag("--tensors", *tensors, "list every tensor with its type and shape");
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, tensors] { run(*common, *tensors); });
}

}  // namespace unchain::cli
