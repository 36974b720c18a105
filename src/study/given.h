// Claims asked of models that one has: what a study measures of the models that it trains, of given ones.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/needle.h"
#include "study/claims.h"
#include "study/description.h"
#include "tensor/tensor.h"

namespace unchain::study {

struct GivenModel {
  std::string member, path;
  int64_t seed = 0;  // its place among the models of this member: models of equal place are a pair
};

// "softmax=A,B diff=C,D": members, or the roles that claims know (diff, variant, twin). Errors: usage (no '=', an empty
// path, a member that no claim speaks of: lists them; one twice).
std::vector<GivenModel> parse_given(const std::vector<std::string>& models, const Claims& claims);

struct GivenOptions {
  std::string text;         // that no model was trained on
  std::string calibration;  // another, for means over texts
  int64_t window = 256;     // N, tokens with BOS
  AnalysisKeys keys;
  eval::NeedleOptions needle;
  DType dtype = DType::f32;
  uint64_t seed = 0;
  std::function<void(const std::string&)> on_note;
};

// Two results a model, in the form of carry_out(): of the track language what text tells, of the track retrieval what
// needles tell; all of the size "given". A model that cannot be trained here lacks what needs gradients, and a note
// says so, as one does where two read the text as different tokens. Errors: those of model::ModelFile, model::load,
// measure_model, ask_rungs; unsupported (no tokenizer).
std::vector<nlohmann::ordered_json> measure_given(const std::vector<GivenModel>& models, const GivenOptions& options);

}  // namespace unchain::study
