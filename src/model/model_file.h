// A model as it lies on disk, opened and checked but not loaded: its configuration, tensors by part, and tokenizer.
// The only place (with save.cc) where file formats and models meet.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/config.h"
#include "tensor/tensor.h"
#include "tokenizer/tokenizer.h"

namespace unchain::model {

// The tensors of the transformer. Layer parts have one a layer; each may have a `.bias` beside its `.weight`.
enum class Part {
  token_embedding,
  output_norm,
  output,
  attention_norm,
  query,
  key,
  value,
  attention_output,
  query_norm,
  key_norm,
  attention_post_norm,
  feed_forward_norm,
  gate,
  up,
  down,
  feed_forward_post_norm,
};
inline constexpr Part kModelParts[] = {Part::token_embedding, Part::output_norm, Part::output};
inline constexpr Part kLayerParts[] = {
    Part::attention_norm,        Part::query,      Part::key,      Part::value,
    Part::attention_output,      Part::query_norm, Part::key_norm, Part::attention_post_norm,
    Part::feed_forward_norm,     Part::gate,       Part::up,       Part::down,
    Part::feed_forward_post_norm};

enum class FileKind { gguf, hugging_face };

// The name of a part's tensor in files of that kind; empty where the architecture has no such part. `suffix`: "weight",
// "bias".
std::string tensor_name(FileKind kind, const Architecture& architecture, Part part, int64_t layer,
                        std::string_view suffix);
bool is_norm(Part part);

class ModelFile {
 public:
  // A GGUF file, or a Hugging Face folder (`config.json` and safetensors), or a run folder with `model/` in it.
  // Errors: io, format; unsupported for an architecture or a feature that is sound but not ours.
  static ModelFile open(const std::filesystem::path& path);

  FileKind kind() const { return gguf_ ? FileKind::gguf : FileKind::hugging_face; }
  const std::filesystem::path& path() const { return path_; }
  const Config& config() const { return config_; }
  const std::vector<Tensor>& tensors() const { return gguf_ ? gguf_->tensors() : safetensors_->tensors(); }
  // nullptr if the file has no such tensor.
  const Tensor* find(Part part, int64_t layer = 0, std::string_view suffix = "weight") const;
  // A tensor that an attention member adds to a layer, by its name behind "self_attn." (attention::extra_tensors()).
  const Tensor* find_extra(int64_t layer, std::string_view name) const;
  // Only for GGUF files.
  const formats::GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }
  // The tokenizer that comes with the model. Errors: those of the tokenizer.
  std::unique_ptr<tokenizer::Tokenizer> tokenizer(const std::string& pretokenizer = "") const;
  // Names of tensors that no part of this architecture uses, for a warning.
  std::vector<std::string> unused_tensors() const;
  void release_pages() const {
    if (gguf_) gguf_->release_pages();
  }

 private:
  std::filesystem::path path_;
  std::optional<formats::GgufFile> gguf_;
  std::optional<formats::SafetensorsFile> safetensors_;
  std::string prefix_;  // of tensor names in multimodal folders
  Config config_;
};

// The configuration of a GGUF file's metadata, and of a folder's config.json. Errors: format, unsupported.
Config config_from_gguf(const formats::GgufFile& file);
Config config_from_folder(const std::filesystem::path& folder);

}  // namespace unchain::model
