// A configuration written out: as GGUF metadata and as config.json. Internal to saving.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "model/config.h"

namespace unchain::model {

// "general.…" and "ARCHITECTURE.…" keys; the tensor rope_freqs.weight goes to `tensors` where the scaling needs one.
std::vector<formats::GgufEntry> gguf_metadata(const Config& config, const std::string& name,
                                              std::vector<Tensor>& tensors);

// config.json in the form that transformers 4 and 5 read. `dtype`: "float32", "float16", "bfloat16".
// Error: unsupported for rotary frequencies that the form cannot say.
nlohmann::json hugging_face_config(const Config& config, const std::string& dtype);

// The text of the config.json of a folder with f32 weights. Error: as hugging_face_config().
std::string config_json(const Config& config);

// general.file_type of a GGUF file whose matrices have this type.
uint32_t gguf_file_type(DType type);

}  // namespace unchain::model
