// A model file in another form: GGUF or Hugging Face folder, types kept or changed.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "model/model_file.h"

namespace unchain::model {

struct SaveOptions {
  std::optional<DType>
      type;  // of matrices: f32, f16, bf16, q8_0; absent: kept (in a folder, quantised ones become f32)
};

struct SaveResult {
  int64_t tensors = 0;
  int64_t unchanged = 0;  // byte for byte as in the source
  int64_t bytes = 0;
  std::map<DType, int64_t> other_types;  // matrices that do not have the type asked for, by the type that they have
};

// The tensors of the file under the names, row order and norm convention of the other kind. Vectors become f32 where
// they must change; q8_0 is used for rows of a multiple of 32 numbers, other matrices then stay f32.
std::vector<Tensor> convert_tensors(const ModelFile& file, FileKind kind, const SaveOptions& options);

// Writes a GGUF file, in a folder that is made where it is missing. From GGUF: every metadata value kept. From a
// folder: metadata made from config.json and tokenizer. Errors: io; unsupported (what GGUF cannot hold).
SaveResult save_gguf(const ModelFile& file, const std::filesystem::path& path, const SaveOptions& options);

// Writes a folder: config.json, model.safetensors (sharded above 5 GB), tokenizer files, in a folder that is made where
// it is missing. It appears under its name when
// it is complete. Errors: io (also if the folder exists and is not empty); unsupported (what a folder cannot hold).
SaveResult save_folder(const ModelFile& file, const std::filesystem::path& folder, const SaveOptions& options);

}  // namespace unchain::model
