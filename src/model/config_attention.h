// The `attention` object of config.json: which member of the family a model's attention is. Keys that are absent come
// from the preset. docs/attention-family.md lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "attention/family.h"

namespace unchain::model {

// Errors: format, naming the key, what was found and what is expected; an unknown key with those that are known.
attention::AttentionConfig attention_from_json(const nlohmann::json& object, const std::string& where);
// The object that gives this description back.
nlohmann::json attention_to_json(const attention::AttentionConfig& config);

// Whether Hugging Face's diffllama can say it: two halves of the heads, λ by depth, a norm without weight, every layer.
bool is_diffllama(const attention::AttentionConfig& config);

// 0.9 rather than 0.8999999761581421: the shortest number that reads back as the same float.
double shortest(float x);

}  // namespace unchain::model
