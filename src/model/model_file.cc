#include "model/model_file.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "formats/text.h"
#include "model/member.h"

namespace unchain::model {
namespace {

// A part's name in both kinds of file; "{}" stands for the layer.
struct PartName {
  Part part;
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr PartName kNames[] = {
    {Part::token_embedding, "token_embd", "model.embed_tokens"},
    {Part::output_norm, "output_norm", "model.norm"},
    {Part::output, "output", "lm_head"},
    {Part::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {Part::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {Part::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {Part::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {Part::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {Part::query_norm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {Part::key_norm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    {Part::attention_post_norm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {Part::feed_forward_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {Part::gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {Part::up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {Part::down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
    {Part::feed_forward_post_norm, "blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

// Where a family has norms on both sides, Hugging Face calls the one before feed-forward by another name.
constexpr std::string_view kPreFeedForward = "model.layers.{}.pre_feedforward_layernorm";

// Error: io, with what was looked for.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  if (error) fail(ErrorCode::io, "{}: cannot list the folder: {}", folder.string(), error.message());
  std::string hint = "it has neither config.json nor model/config.json";
  for (; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".gguf") continue;
    hint += fmt::format("; for the GGUF file in it give {}", formats::printable(entry->path().string()));
    break;
  }
  fail(ErrorCode::io,
       "{}: is no model folder: {}. A model folder holds config.json, model.safetensors (or its parts with "
       "model.safetensors.index.json) and tokenizer.json or tokenizer.model",
       folder.string(), hint);
}

bool starts_with_magic(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  const auto bytes = file.bytes();
  return bytes.size() >= 4 && std::string_view(reinterpret_cast<const char*>(bytes.data()), 4) == "GGUF";
}

}  // namespace

bool is_norm(Part part) {
  switch (part) {
    case Part::output_norm:
    case Part::attention_norm:
    case Part::query_norm:
    case Part::key_norm:
    case Part::attention_post_norm:
    case Part::feed_forward_norm:
    case Part::feed_forward_post_norm:
      return true;
    default:
      return false;
  }
}

std::string tensor_name(FileKind kind, const Architecture& architecture, Part part, int64_t layer,
                        std::string_view suffix) {
  const bool absent =
      ((part == Part::query_norm || part == Part::key_norm) && !architecture.query_key_norm) ||
      ((part == Part::attention_post_norm || part == Part::feed_forward_post_norm) && !architecture.post_norms);
  if (absent) return "";
  for (const PartName& row : kNames) {
    if (row.part != part) continue;
    std::string_view pattern = kind == FileKind::gguf ? row.gguf : row.hugging_face;
    if (kind == FileKind::hugging_face && part == Part::feed_forward_norm && architecture.post_norms)
      pattern = kPreFeedForward;
    return fmt::format("{}.{}", fmt::format(fmt::runtime(pattern), layer), suffix);
  }
  return "";
}

ModelFile ModelFile::open(const std::filesystem::path& path) {
  ModelFile file;
  file.path_ = path;
  std::error_code ignored;  // what cannot be looked at cannot be opened either, which says why
  if (!std::filesystem::is_directory(path, ignored)) {
    if (!starts_with_magic(path)) {
      fail(ErrorCode::format,
           "{}: is neither a GGUF file (it does not begin with \"GGUF\") nor a folder with config.json", path.string());
    }
    file.gguf_ = formats::GgufFile::open(path);
    file.config_ = config_from_gguf(*file.gguf_);
    return file;
  }
  if (!std::filesystem::exists(path / "config.json", ignored)) file.path_ = path / "model";
  if (!std::filesystem::exists(file.path_ / "config.json", ignored)) refuse_folder(path);
  file.config_ = config_from_folder(file.path_);
  file.safetensors_ = formats::SafetensorsFile::open_folder(file.path_);
  // Multimodal folders keep the language model under a prefix, which differs between versions of transformers.
  for (const char* prefix : {"", "language_model.", "model.language_model."}) {
    std::string name = prefix + std::string("model.embed_tokens.weight");
    if (std::string_view(prefix) == "model.language_model.") name = "model.language_model.embed_tokens.weight";
    if (file.safetensors_->find(name) != nullptr) file.prefix_ = prefix;
  }
  return file;
}

const Tensor* ModelFile::find(Part part, int64_t layer, std::string_view suffix) const {
  std::string name = tensor_name(kind(), *config_.architecture, part, layer, suffix);
  if (name.empty()) return nullptr;
  if (gguf_) return gguf_->find(name);
  if (prefix_ == "model.language_model." && name.starts_with("model."))
    return safetensors_->find(prefix_ + name.substr(6));
  return safetensors_->find(prefix_ + name);
}

const Tensor* ModelFile::find_extra(int64_t layer, std::string_view name) const {
  return gguf_ ? nullptr : safetensors_->find(fmt::format("model.layers.{}.self_attn.{}", layer, name));
}

std::unique_ptr<tokenizer::Tokenizer> ModelFile::tokenizer(const std::string& pretokenizer) const {
  return gguf_ ? tokenizer::from_gguf(*gguf_, pretokenizer) : tokenizer::from_folder(path_, pretokenizer);
}

std::vector<std::string> ModelFile::unused_tensors() const {
  std::set<const Tensor*> used;
  for (const char* suffix : {"weight", "bias"}) {
    for (const Part part : kModelParts) used.insert(find(part, 0, suffix));
    for (int64_t layer = 0; layer < config_.layer_count(); ++layer) {
      for (const Part part : kLayerParts) used.insert(find(part, layer, suffix));
    }
  }
  for (int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    for (const attention::ExtraTensor& extra : extra_tensors(config_, layer))
      used.insert(find_extra(layer, extra.name));
  }
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors()) {
    const bool known = tensor.name == "rope_freqs.weight" || tensor.name.ends_with("rotary_emb.inv_freq");
    if (!used.contains(&tensor) && !known) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace unchain::model
