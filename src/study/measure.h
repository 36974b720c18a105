// What is measured of a trained model: the numbers behind the claims, by the names of study/claims.json. docs/claims.md
// defines each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/hessian.h"
#include "analysis/lambda_curve.h"
#include "analysis/mean_map.h"
#include "eval/choice.h"
#include "eval/needle.h"
#include "model/trainable.h"
#include "model/transformer.h"
#include "study/description.h"
#include "study/over_windows.h"
#include "tokenizer/tokenizer.h"

namespace unchain::study {

// One measure of one model.
struct Measured {
  std::optional<double> value;  // absent where the measure does not apply
  Windows windows;
};
using Measures = std::map<std::string, Measured>;

// Texts, and how to look at them.
struct MeasureInputs {
  std::shared_ptr<const model::Transformer> model;
  int32_t bos = -1;                         // −1: none
  std::vector<std::vector<int32_t>> texts;  // that the model has not seen: tokens of each, no BOS
  std::vector<int32_t> calibration;         // of a text that it was trained on, for means over texts
  int64_t context = 256;                    // N: tokens that a window holds, BOS among them
  AnalysisKeys keys;
  uint64_t seed = 0;
};

// Adds what is measured of predictions (loss_nats, token_error, ngram_error) and of maps (ranks, entropies, negative
// weights, row sums, redundancy), each window from an empty context. Windows lie evenly in their text; of a text that
// holds fewer than asked for, all are taken. Errors: usage (a text shorter than a window); numeric.
void measure_predictions(Measures& measures, const MeasureInputs& in);
// Returns the median entropy rank of the block by layer, over heads and windows: absent where there is no such map, or
// no block.
struct LayerRanks {
  std::vector<std::optional<double>> positive, noise;
};
LayerRanks measure_maps(Measures& measures, const MeasureInputs& in);
// Adds what maps have in common over texts (a1_explained_by_place …), what becomes of the loss when they are replaced
// by maps of rank kFixedRank (loss_fixed_a2_nats …), and what the noise term writes to the residual stream
// (noise_removes_share …). The noise term's measures are without a value where there is none. `calibration`: the mean
// maps over windows of the training text, of mean_maps(). Errors: as above.
analysis::MeanMaps mean_maps(const MeasureInputs& in);
void measure_terms(Measures& measures, const MeasureInputs& in, const analysis::MeanMaps& calibration);
// Adds what no claim asks: λ beside the projection of A1 on A2 (lambda_used, lambda_projected, terms_cosine),
// activation outliers (hidden_outlier_ratio, logit_outlier_ratio) and, with a trainable, mass on the keys that the loss
// depends on most (loss_key_mass; chosen by the weight that it measures, so that it may be shown, not judged). The
// gradients of the trainable are lost. Errors: as above.
struct LayerLambdas {
  // By layer, mean over what has a λ of its own there: heads, or the layer. Absent without a noise term.
  std::vector<std::optional<double>> used, projected;
};
LayerLambdas measure_unclaimed(Measures& measures, model::Trainable* trainable, const MeasureInputs& in);
// Adds how evenly importance is spread over heads (head_importance_gini, head_ablation_gini). The gradients of
// `trainable`, the same model in f32, are lost. Errors: as above.
void measure_heads(Measures& measures, model::Trainable& trainable, const MeasureInputs& in);
// Adds what attention does on needle prompts, in the row that predicts the first digit of an answer; `result` is what
// ask_needles() gave for `tasks`, and the first question of each prompt is looked at.
// - Key mass on the number (needle_key_mass …), and whether it foretells a right answer (key_mass_auc); on the asked
// city
//   where its needle names it (entity_key_mass).
// - Attribution that reaches the number (attribution_key_share …), if there is a trainable, whose gradients are lost.
// - What the answer's logit and rank become with the edges from the number to the row cut in all layers (knockout_…).
// - The share of the attention rollout that starts at the number, of P and of |P| (rollout_key_share …), of the first
//   kRolloutSamples prompts of each task, none longer than kRolloutTokens.
// Values by window have a sample as a text and its lengths and depths as windows. Errors: as above.
inline constexpr size_t kRolloutSamples = 4;
inline constexpr int64_t kRolloutTokens = 2048;  // its work is cubic in them
void measure_needles(Measures& measures, model::Trainable* trainable, const MeasureInputs& in,
                     const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                     const std::vector<eval::NeedleTask>& tasks, const eval::NeedleResult& result);

// The share of questions answered right, with λ as it is and with λ = 0 in one layer after another (by layer; absent
// for layers without a noise term). All by the same arithmetic, so that they may be compared. A pass over all prompts
// for each. Errors: those of eval::ask_needles.
struct NoiseAccuracy {
  std::optional<double> with;  // absent without any noise term
  std::vector<std::optional<double>> without;
};
NoiseAccuracy accuracy_by_layer(const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                const std::vector<eval::NeedleTask>& tasks);

// Adds the share of texts whose last word is not foretold (last_word_error): eval/choice.h. Errors: those of
// encode_choices, score_choices.
void measure_last_words(Measures& measures, const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer,
                        const eval::ChoiceSet& texts);

// The Hessian of the loss of one fixed batch, four windows of the training text, at each checkpoint (step and folder).
// Adds hessian_negative_share and hessian_negative_weight, means over the checkpoints. Some 400 passes forward and
// backward over the batch for each. Errors: usage, numeric; those of model_hessian.
struct HessianPoint {
  int64_t step = 0;
  analysis::HessianSpectrum spectrum;
};
std::vector<HessianPoint> measure_hessian(Measures& measures,
                                          const std::vector<std::pair<int64_t, std::filesystem::path>>& checkpoints,
                                          const MeasureInputs& in);

// Rows of the noise that fixed_diff mixes: the rank at which a fixed map stands for A2.
inline constexpr int64_t kFixedRank = 5;

// What layers have of a measure, for claims that compare them: nats a token by layer, absent where a layer lacks it.
struct LayerProfile {
  std::vector<std::optional<double>> gain;         // rise of the loss with λ = 0 in a layer
  std::vector<std::optional<double>> random_gain;  // with a random change of its outputs that is as large
  std::vector<std::optional<double>> sensitivity;  // rise of the loss on induction targets without its attention
  // Of gain and sensitivity; a layer's are empty where one of its windows lacks it.
  std::vector<Windows> gain_windows, sensitivity_windows;
};
LayerProfile profile_layers(const MeasureInputs& in);

// Losses for pictures, nats a token, over the first window of each text.
struct RankLoss {
  bool fixed = false;           // by the mean map of the training text, else by each text's own best map
  std::optional<int64_t> rank;  // absent: full
  double loss_nats = 0;
};
struct RunCurves {
  double loss_nats = 0;                             // of the model as it is
  std::vector<RankLoss> positive, noise;            // every A1 replaced (of softmax the map itself), and every A2
  std::optional<double> positive_rows, noise_rows;  // replaced by fixed_diff's rows, as near as they come to the mean
  std::optional<analysis::LambdaCurves> lambda;     // along λ → m·λ, of the model and by layer
};
// Errors: as the others.
RunCurves measure_curves(const MeasureInputs& in, const analysis::MeanMaps& calibration);

}  // namespace unchain::study
