// Maps of single models for the page of a study or a comparison, on which models stand side by side.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "study/claims.h"
#include "study/description.h"
#include "study/given.h"
#include "tokenizer/tokenizer.h"

namespace unchain::study {

// Room for the excerpts of all models' maps on a page.
inline constexpr int64_t kMapBytes = 1'200'000;

// An entry of the page's "models" (report/page.h): what all heads of the model do with these ids, the first of its BOS
// where it has one. `bytes`: room for its excerpts. Errors: those of Context::extend and MapAnalyzer.
nlohmann::json shown_maps(const std::string& name, const std::shared_ptr<const model::Transformer>& model,
                          const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> ids, int64_t bytes);

// The page's "models": of the roles that claims compare (twin, diff, variant) the first run each whose model is in the
// folder of the study, with the beginning of its validation text. A model or text that cannot be read is a note, since
// results do not hang on it.
nlohmann::json maps_of_runs(const std::vector<PlannedRun>& runs, const std::filesystem::path& study,
                            const Claims& claims, const std::function<void(const std::string& note)>& on_note);
// Likewise of models that were given, with the beginning of their text. Errors: those of model::load and shown_maps.
nlohmann::json maps_of_given(const std::vector<GivenModel>& models, const GivenOptions& options, const Claims& claims);

}  // namespace unchain::study
