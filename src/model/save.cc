#include "model/save.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "formats/json.h"
#include "model/save_config.h"
#include "tokenizer/readers.h"
#include "tokenizer/writers.h"

namespace unchain::model {
namespace {

// Bytes and tensors of the result, how many are shared with the source, and how many have another type than asked.
SaveResult summarise(const ModelFile& file, const std::vector<Tensor>& tensors, const SaveOptions& options) {
  SaveResult result;
  result.tensors = static_cast<int64_t>(tensors.size());
  for (const Tensor& tensor : tensors) {
    result.bytes += static_cast<int64_t>(tensor.bytes.size());
    if (options.type && tensor.shape.size() > 1 && tensor.type != *options.type) ++result.other_types[tensor.type];
    result.unchanged += std::any_of(file.tensors().begin(), file.tensors().end(), [&](const Tensor& t) {
      return t.bytes.data() == tensor.bytes.data() && t.type == tensor.type;
    });
  }
  return result;
}

void set_entry(std::vector<formats::GgufEntry>& entries, const std::string& key, formats::GgufValue value) {
  for (formats::GgufEntry& entry : entries) {
    if (entry.key == key) {
      entry.value = std::move(value);
      return;
    }
  }
  entries.push_back({key, std::move(value)});
}

// The type that most matrices have: what general.file_type and torch_dtype speak of.
DType main_type(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> count(64, 0);
  for (const Tensor& tensor : tensors) {
    if (tensor.shape.size() > 1) count[static_cast<size_t>(tensor.type)] += tensor.elements();
  }
  return static_cast<DType>(std::max_element(count.begin(), count.end()) - count.begin());
}

std::string torch_name(DType type) {
  if (type == DType::f16) return "float16";
  return type == DType::bf16 ? "bfloat16" : "float32";
}

// config.json: the source's own with the new type, or one made from the configuration.
nlohmann::json config_for(const ModelFile& file, const std::string& dtype) {
  if (file.gguf() != nullptr) return hugging_face_config(file.config(), dtype);
  const std::filesystem::path path = file.path() / "config.json";
  nlohmann::json json = formats::parse_json(read_text(path), path.string());
  json.erase("dtype");
  json["torch_dtype"] = dtype;
  return json;
}

// Tokenizer files beside the model: copied as they are, or made from the GGUF metadata.
void save_tokenizer(const ModelFile& file, const std::filesystem::path& folder) {
  if (const formats::GgufFile* gguf = file.gguf()) {
    const auto model = gguf->string("tokenizer.ggml.model");
    if (model && *model != "none")
      tokenizer::write_folder(tokenizer::read_gguf(*gguf), folder,
                              gguf->string("tokenizer.chat_template").value_or(""));
    return;
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "added_tokens.json", "chat_template.jinja"}) {
    const std::filesystem::path from = file.path() / name;
    if (std::filesystem::is_regular_file(from)) write_text(folder / name, read_text(from));
  }
}

// "out/" is the folder out.
std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Makes the folder that the output will stand in.
void make_parent(const std::filesystem::path& path) {
  const std::filesystem::path parent = without_slash(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) fail(ErrorCode::io, "{}: cannot make the folder {}: {}", path.string(), parent.string(), error.message());
}

bool has_tokenizer(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") || std::filesystem::exists(folder / "tokenizer.model");
}

}  // namespace

SaveResult save_gguf(const ModelFile& file, const std::filesystem::path& path, const SaveOptions& options) {
  make_parent(path);
  check_writable(path);
  std::vector<Tensor> tensors = convert_tensors(file, FileKind::gguf, options);
  std::vector<formats::GgufEntry> entries;
  if (const formats::GgufFile* gguf = file.gguf()) {
    entries = gguf->metadata();
    for (const Tensor& tensor : gguf->tensors()) {
      const bool ours =
          std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == tensor.name; });
      if (!ours) tensors.push_back(tensor);  // what this version does not use is kept as it is
    }
    // In the order of the source, so that an export without changes is the same file.
    std::vector<Tensor> ordered;
    for (const Tensor& tensor : gguf->tensors()) {
      ordered.push_back(
          *std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == tensor.name; }));
    }
    tensors = std::move(ordered);
  } else {
    entries = gguf_metadata(file.config(), without_slash(file.path()).filename().string(), tensors);
    if (has_tokenizer(file.path())) {
      for (formats::GgufEntry& entry : tokenizer::gguf_entries(tokenizer::read_folder(file.path())))
        entries.push_back(std::move(entry));
    } else {
      entries.push_back({"tokenizer.ggml.model", std::string("none")});
    }
  }
  if (options.type || file.gguf() == nullptr)
    set_entry(entries, "general.file_type", gguf_file_type(main_type(tensors)));
  formats::write_gguf(path, entries, tensors);
  return summarise(file, tensors, options);
}

SaveResult save_folder(const ModelFile& file, const std::filesystem::path& folder, const SaveOptions& options) {
  if (options.type == DType::q8_0)
    fail(ErrorCode::unsupported, "{}: a folder of safetensors cannot hold q8_0; use f32, f16 or bf16, or a .gguf file",
         folder.string());
  if (std::filesystem::exists(folder) &&
      !(std::filesystem::is_directory(folder) && std::filesystem::is_empty(folder))) {
    fail(ErrorCode::io, "{}: exists and is not an empty folder; give another name", folder.string());
  }
  make_parent(folder);
  // Everything goes to a folder beside it, which takes the name when it is complete.
  const std::filesystem::path building = make_unfinished_folder(folder);
  try {
    const std::vector<Tensor> tensors = convert_tensors(file, FileKind::hugging_face, options);
    const nlohmann::json config = config_for(file, torch_name(main_type(tensors)));
    write_text(building / "config.json", config.dump(2) + "\n");
    save_tokenizer(file, building);
    formats::write_safetensors_folder(building, tensors, {{"format", "pt"}});
    std::filesystem::remove(folder);
    std::filesystem::rename(building, folder);
    return summarise(file, tensors, options);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(building, ignored);
    throw;
  }
}

}  // namespace unchain::model
