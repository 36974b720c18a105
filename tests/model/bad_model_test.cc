// Files that are sound as files but no model, or none of ours: each has its code and one message that names the thing.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "support/golden_model.h"

namespace unchain::test {
namespace {

using formats::GgufEntry;
using formats::GgufFile;
using formats::GgufValue;
using model::load;
using model::ModelFile;
using nlohmann::json;

// A copy of a golden folder with another config.json.
void expect_config_error(const std::string& name, const std::function<void(json&)>& change, ErrorCode code,
                         std::initializer_list<std::string> parts) {
  TemporaryFolder folder;
  json config = json::parse(read_file(tiny(name) / "config.json"));
  change(config);
  write_file(folder / "config.json", config.dump());
  std::filesystem::copy(tiny(name) / "model.safetensors", folder.path());
  expect_error([&] { load(ModelFile::open(folder.path()), DType::f32); }, code, parts);
}

// The same with `key` set to a value.
void expect_bad_key(const std::string& name, const char* key, const json& value, ErrorCode code,
                    std::initializer_list<std::string> parts) {
  SCOPED_TRACE(testing::Message() << key << " = " << value.dump());
  expect_config_error(
      name, [&](json& config) { config[key] = value; }, code, parts);
}

TEST(BadModel, UnsupportedIsNotCorrupt) {
  expect_error([] { ModelFile::open(tiny("unsupported_mamba")); }, ErrorCode::unsupported, {"mamba", "llama, gemma3"});
  expect_bad_key("llama_grouped", "model_type", "qwen99", ErrorCode::unsupported, {"qwen99", "llama, gemma3"});
  expect_bad_key("llama_grouped", "hidden_act", "relu", ErrorCode::unsupported, {"activation 'relu'"});
  expect_bad_key("llama_grouped", "hidden_act", "gelu_pytorch_tanh", ErrorCode::unsupported, {"activation", "llama"});
  expect_bad_key("gemma3_window", "use_bidirectional_attention", true, ErrorCode::unsupported, {"bidirectional"});
  expect_bad_key("gemma3_window", "attn_logit_softcapping", 50.0, ErrorCode::unsupported, {"attn_logit_softcapping"});
  expect_bad_key("llama_linear", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}, ErrorCode::unsupported,
                 {"yarn", "linear and llama3"});
  expect_bad_key("llama_linear", "rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
                 ErrorCode::unsupported, {"partial_rotary_factor"});
}

TEST(BadModel, ConfigsThatMakeNoSense) {
  const char* required[] = {"model_type",        "vocab_size",          "hidden_size",
                            "intermediate_size", "num_attention_heads", "num_hidden_layers"};
  for (const char* key : required) {
    SCOPED_TRACE(key);
    const std::string quoted = "'" + std::string(key) + "'";
    expect_config_error("llama_grouped", [&](json& config) { config.erase(key); }, ErrorCode::format,
                        {quoted, "missing"});
    expect_bad_key("llama_grouped", key, nullptr, ErrorCode::format, {quoted, "missing"});
    expect_bad_key("llama_grouped", key, json::array(), ErrorCode::format, {quoted, "[]"});
  }
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
                          "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const json& value : {json(0), json(-3), json(INT64_MIN), json(INT64_MAX), json(1 << 30)}) {
      if (std::string(key) == "max_position_embeddings" && value == json(1 << 30)) continue;  // long, but thinkable
      expect_bad_key("llama_grouped", key, value, ErrorCode::format, {"config.json"});
    }
    for (const json& value : {json(2.5), json("6"), json(true), json(UINT64_MAX)}) {
      expect_bad_key("llama_grouped", key, value, ErrorCode::format, {key, "a whole number"});
    }
  }
  expect_bad_key("llama_grouped", "num_key_value_heads", 4, ErrorCode::format, {"6 heads", "4 KV heads"});
  expect_bad_key("llama_grouped", "head_dim", 9, ErrorCode::format, {"head width 9 is odd"});
  expect_bad_key("llama_grouped", "rms_norm_eps", 0, ErrorCode::format, {"norm epsilon"});
  expect_bad_key("llama_grouped", "rms_norm_eps", "tiny", ErrorCode::format, {"rms_norm_eps", "a number"});
  expect_bad_key("llama_grouped", "rope_parameters", {{"rope_theta", -1.0}}, ErrorCode::format, {"rotary base is -1"});
  expect_bad_key("llama_grouped", "rope_parameters", 7, ErrorCode::format, {"rope_parameters", "an object"});
  expect_bad_key("llama_grouped", "tie_word_embeddings", 1, ErrorCode::format, {"true or false"});
  expect_bad_key("llama_linear", "rope_scaling", {{"type", "linear"}}, ErrorCode::format, {"'factor'", "missing"});
  expect_bad_key("llama_linear", "rope_scaling", {{"type", "linear"}, {"factor", 0}}, ErrorCode::format,
                 {"scaling factor"});
  expect_bad_key("llama_linear", "rope_scaling",
                 {{"type", "llama3"}, {"factor", 2.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 4.0}},
                 ErrorCode::format, {"high_freq_factor 4", "low_freq_factor 4"});
  expect_bad_key("gemma3_window", "sliding_window", 0, ErrorCode::format, {"sliding_window 0"});
  expect_bad_key("gemma3_window", "sliding_window_pattern", -1, ErrorCode::format, {"pattern -1"});
  expect_bad_key("gemma3_window", "layer_types", {"full_attention"}, ErrorCode::format,
                 {"layer_types", "one entry a layer"});
  expect_bad_key("gemma3_window", "layer_types", {"full_attention", "sliding_attention", "full_attention", "chunked"},
                 ErrorCode::format, {"chunked"});
  expect_bad_key("gemma3_window", "query_pre_attn_scalar", -4, ErrorCode::format, {"query_pre_attn_scalar is -4"});
  expect_bad_key("gemma3_window", "final_logit_softcapping", -1, ErrorCode::format, {"soft cap is -1"});
}

TEST(BadModel, ConfigFilesThatAreNone) {
  TemporaryFolder folder;
  expect_error([&] { ModelFile::open(folder.path()); }, ErrorCode::io, {"config.json"});
  for (const char* text : {"", "{", "[1, 2]", "7", "\xff\xfe", "{\"model_type\": \"llama\""}) {
    write_file(folder / "config.json", text);
    expect_error([&] { ModelFile::open(folder.path()); }, ErrorCode::format, {"config.json"});
  }
  std::filesystem::remove(folder / "config.json");
  std::filesystem::create_directory(folder / "config.json");
  expect_error([&] { ModelFile::open(folder.path()); }, ErrorCode::io, {"config.json"});
  write_file(folder / "text.bin", "hello");
  expect_error([&] { ModelFile::open(folder / "text.bin"); }, ErrorCode::format, {"text.bin", "neither a GGUF file"});
  expect_error([&] { ModelFile::open(folder / "absent"); }, ErrorCode::io, {"absent"});
  expect_error([&] { ModelFile::open(folder / std::string(5000, 'x')); }, ErrorCode::io, {"xxx"});
  expect_error([&] { ModelFile::open(folder / "text.bin" / "below"); }, ErrorCode::io, {"below"});
  expect_error([&] { ModelFile::open(""); }, ErrorCode::io, {""});
}

// A copy of a golden GGUF file with changed metadata and tensors.
void expect_gguf_error(const std::string& name,
                       const std::function<void(std::vector<GgufEntry>&, std::vector<Tensor>&)>& change, ErrorCode code,
                       std::initializer_list<std::string> parts) {
  TemporaryFolder folder;
  const GgufFile file = GgufFile::open(tiny(name) / "model.gguf");
  std::vector<GgufEntry> metadata = file.metadata();
  std::vector<Tensor> tensors = file.tensors();
  change(metadata, tensors);
  formats::write_gguf(folder / "changed.gguf", metadata, tensors);
  expect_error([&] { load(ModelFile::open(folder / "changed.gguf"), DType::f32); }, code, parts);
}

// With one metadata value set, added or (no value) taken away.
void expect_bad_value(const std::string& name, const std::string& key, std::optional<GgufValue> value, ErrorCode code,
                      std::initializer_list<std::string> parts) {
  SCOPED_TRACE(key);
  expect_gguf_error(
      name,
      [&](std::vector<GgufEntry>& metadata, std::vector<Tensor>& /*tensors*/) {
        std::erase_if(metadata, [&](const GgufEntry& entry) { return entry.key == key; });
        if (value) metadata.push_back({key, *value});
      },
      code, parts);
}

template <class T>
GgufValue array(std::vector<T> elements) {
  auto result = std::make_shared<formats::GgufArray>();
  result->elements = std::move(elements);
  return std::shared_ptr<const formats::GgufArray>(result);
}

TEST(BadModel, GgufMetadata) {
  expect_bad_value("llama_grouped", "general.architecture", std::nullopt, ErrorCode::format,
                   {"general.architecture", "missing"});
  expect_bad_value("llama_grouped", "general.architecture", GgufValue(std::string("gpt2")), ErrorCode::unsupported,
                   {"'gpt2'", "llama, gemma3"});
  expect_bad_value("llama_grouped", "general.architecture", GgufValue(std::string("gemma3_text")),
                   ErrorCode::unsupported, {"'gemma3_text'"});
  expect_bad_value("llama_grouped", "general.architecture", GgufValue(uint32_t{3}), ErrorCode::format,
                   {"general.architecture"});
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    expect_bad_value("llama_grouped", key, std::nullopt, ErrorCode::format, {key, "missing"});
    expect_bad_value("llama_grouped", key, GgufValue(std::string("six")), ErrorCode::format, {key});
    expect_bad_value("llama_grouped", key, GgufValue(int32_t{-1}), ErrorCode::format, {"changed.gguf"});
    expect_bad_value("llama_grouped", key, GgufValue(int32_t{0}), ErrorCode::format, {"changed.gguf"});
    if (std::string(key) == "llama.attention.layer_norm_rms_epsilon") continue;
    expect_bad_value("llama_grouped", key, GgufValue(int64_t{INT64_MAX}), ErrorCode::format, {"changed.gguf"});
    expect_bad_value("llama_grouped", key, GgufValue(uint64_t{UINT64_MAX}), ErrorCode::format, {key});
  }
  expect_bad_value("llama_grouped", "llama.attention.head_count_kv", GgufValue(uint32_t{4}), ErrorCode::format,
                   {"4 KV heads"});
  const auto negative_width = [](std::vector<GgufEntry>& metadata, std::vector<Tensor>& /*tensors*/) {
    std::erase_if(metadata, [](const GgufEntry& e) {
      return e.key == "llama.attention.value_length" || e.key == "llama.rope.dimension_count";
    });
    for (GgufEntry& entry : metadata) {
      if (entry.key == "llama.attention.key_length") entry.value = int32_t{-10};
    }
  };
  expect_gguf_error("llama_grouped", negative_width, ErrorCode::format, {"head width is -10"});
  expect_bad_value("llama_grouped", "llama.attention.value_length", GgufValue(uint32_t{8}), ErrorCode::unsupported,
                   {"value width 8"});
  expect_bad_value("llama_grouped", "llama.rope.dimension_count", GgufValue(uint32_t{4}), ErrorCode::unsupported,
                   {"4 of 10"});
  expect_bad_value("llama_grouped", "llama.rope.scaling.type", GgufValue(std::string("yarn")), ErrorCode::unsupported,
                   {"'yarn'"});
  expect_bad_value("llama_grouped", "llama.rope.freq_base", GgufValue(-5.0f), ErrorCode::format, {"rotary base is -5"});
  expect_bad_value("llama_grouped", "llama.attention.layer_norm_rms_epsilon",
                   GgufValue(std::numeric_limits<float>::quiet_NaN()), ErrorCode::format, {"norm epsilon"});
  const std::string pattern = "gemma3.attention.sliding_window_pattern";
  expect_bad_value("gemma3_default_pattern", pattern, array(std::vector<bool>{true, false}), ErrorCode::format,
                   {pattern, "2 entries", "7 layers"});
  expect_bad_value("gemma3_default_pattern", pattern, array(std::vector<std::string>{"a"}), ErrorCode::format,
                   {pattern});
  expect_bad_value("gemma3_default_pattern", pattern, array(std::vector<float>(7)), ErrorCode::format, {pattern});
  expect_bad_value("gemma3_default_pattern", pattern, GgufValue(std::string("all")), ErrorCode::format, {pattern});
}

TEST(BadModel, GgufTensors) {
  const auto without = [](const std::string& name) {
    return [name](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
      ASSERT_EQ(std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; }), 1u) << name;
    };
  };
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.1.attn_k.weight", "blk.0.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.1.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    expect_gguf_error("llama_grouped", without(name), ErrorCode::format, {name, "missing"});
  }
  // Each matrix with its sizes exchanged: the same bytes, another shape.
  for (const char* name : {"blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_output.weight",
                           "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    const auto turned = [&](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
      for (Tensor& t : tensors) {
        if (t.name == name) std::swap(t.shape[0], t.shape[1]);
      }
    };
    expect_gguf_error("llama_grouped", turned, ErrorCode::shape, {name, "config needs ["});
  }
  const auto flat = [](const char* name) {
    return [name](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
      for (Tensor& t : tensors) {
        if (t.name == name) t.shape = {t.elements()};
      }
    };
  };
  expect_gguf_error("llama_grouped", flat("token_embd.weight"), ErrorCode::format,
                    {"token_embd.weight", "not a matrix"});
  expect_gguf_error("llama_grouped", flat("blk.0.ffn_up.weight"), ErrorCode::shape, {"blk.0.ffn_up.weight"});
  const auto longer = [](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
    const auto find = [&](const char* name) -> Tensor& {
      return *std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
    };
    const Tensor other = find("blk.0.ffn_up.weight");
    Tensor& norm = find("blk.0.ffn_norm.weight");
    norm.type = other.type;
    norm.shape = {other.elements()};
    norm.bytes = other.bytes;
  };
  expect_gguf_error("llama_grouped", longer, ErrorCode::shape, {"blk.0.ffn_norm.weight", "config needs ["});
  // A matrix of whole numbers.
  const auto integers = [](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
    for (Tensor& t : tensors) {
      if (t.name == "blk.0.ffn_up.weight" && info(t.type).bytes == 2) t.type = DType::i16;
    }
  };
  expect_gguf_error("llama_grouped", integers, ErrorCode::unsupported, {"blk.0.ffn_up.weight", "i16"});
  const auto divisors = [](std::vector<GgufEntry>& /*metadata*/, std::vector<Tensor>& tensors) {
    for (Tensor& t : tensors) {
      if (t.name != "rope_freqs.weight") continue;
      t.shape = {t.shape[0] - 1};
      t.bytes = t.bytes.first(static_cast<size_t>(t.shape[0]) * 4);
    }
  };
  expect_gguf_error("llama_llama3", divisors, ErrorCode::shape, {"rotary frequency factors"});
}

TEST(BadModel, FolderTensors) {
  // A head that the config promises, and sizes that disagree with it.
  expect_bad_key("llama_grouped", "tie_word_embeddings", false, ErrorCode::format, {"lm_head.weight", "missing"});
  expect_bad_key("llama_grouped", "vocab_size", 98, ErrorCode::shape, {"embed_tokens", "[97, 36]", "[98, 36]"});
  expect_bad_key("llama_grouped", "num_hidden_layers", 3, ErrorCode::format, {"model.layers.2", "missing"});
  expect_bad_key("llama_grouped", "intermediate_size", 53, ErrorCode::shape, {"mlp", "[52, 36]", "[53, 36]"});
  expect_bad_key("llama_grouped", "head_dim", 12, ErrorCode::shape, {"q_proj", "[60, 36]", "[72, 36]"});
  expect_bad_key("llama_grouped", "num_key_value_heads", 3, ErrorCode::shape, {"k_proj", "[20, 36]", "[30, 36]"});
  TemporaryFolder folder;
  std::filesystem::copy(tiny("llama_grouped") / "config.json", folder.path());
  expect_error([&] { ModelFile::open(folder.path()); }, ErrorCode::io, {"safetensors"});
}

TEST(BadModel, TypesThatModelsDoNotRunIn) {
  const ModelFile file = ModelFile::open(tiny("llama_grouped"));
  for (const DType type : {DType::f16, DType::f64, DType::q8_0, DType::i32}) {
    expect_error([&] { load(file, type); }, ErrorCode::usage, {std::string(info(type).name), "f32 or bf16"});
  }
}

TEST(BadModel, LeftOverTensorsAreNamed) {
  TemporaryFolder folder;
  std::filesystem::copy(tiny("llama_grouped") / "config.json", folder.path());
  const auto file = formats::SafetensorsFile::open_folder(tiny("llama_grouped"));
  auto tensors = file.tensors();
  Tensor extra = tensors[0];
  extra.name = "model.layers.0.self_attn.strange.weight";
  tensors.push_back(extra);
  formats::write_safetensors_folder(folder.path(), tensors);
  EXPECT_EQ(ModelFile::open(folder.path()).unused_tensors(), std::vector<std::string>{extra.name});
}

}  // namespace
}  // namespace unchain::test
