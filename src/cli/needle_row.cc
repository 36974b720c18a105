#include "cli/needle_row.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "analysis/map_row.h"
#include "formats/json.h"
#include "model/context.h"

namespace unchain::cli {
namespace {

using nlohmann::json;

// Four digits, so that the page stays small; relative ones, since most weights of a long row are tiny.
json rounded(const std::vector<float>& values) {
  json out = json::array();
  for (const float x : values) {
    const double shortened = formats::rounded(static_cast<double>(x), 4);
    out.push_back(shortened == 0 ? json(0) : json(shortened));
  }
  return out;
}

json rounded(const std::vector<std::vector<float>>& rows) {
  json out = json::array();
  for (const auto& row : rows) out.push_back(rounded(row));
  return out;
}

// Each token behind the one before it, since some tokenizers drop a blank at the beginning of a text.
json token_texts(const tokenizer::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  json out = json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tokenizer.is_control(ids[i])) {
      out.push_back(tokenizer.piece(ids[i]));
    } else if (i == 0) {
      out.push_back(tokenizer.decode({ids[i]}));
    } else {
      const std::string both = tokenizer.decode({ids[i - 1], ids[i]});
      out.push_back(both.substr(std::min(both.size(), tokenizer.decode({ids[i - 1]}).size())));
    }
  }
  return out;
}

struct Example {
  size_t cell = 0, sample = 0;
};

// From the depths nearest the middle outwards: there the answer lies clear of the first token and of the question.
Example choose(const eval::NeedleResult& result) {
  std::vector<size_t> cells(result.cells.size());
  std::iota(cells.begin(), cells.end(), size_t{0});
  const auto off = [&](size_t c) { return std::abs(result.cells[c].depth - 0.5); };
  std::stable_sort(cells.begin(), cells.end(), [&](size_t a, size_t b) { return off(a) < off(b); });
  for (const size_t c : cells) {
    for (size_t s = 0; s < result.cells[c].samples.size(); ++s)
      if (result.cells[c].samples[s].answers[0].right) return {c, s};
  }
  return {cells[0], 0};
}

}  // namespace

json needle_row(const std::shared_ptr<const model::Transformer>& model, const tokenizer::Tokenizer& tokenizer,
                text::NeedleForm form, const std::vector<eval::NeedleTask>& tasks, const eval::NeedleResult& result) {
  const Example example = choose(result);
  const text::NeedlePrompt& prompt = tasks[example.cell].prompts[example.sample];
  const eval::NeedleCell& cell = result.cells[example.cell];
  const eval::NeedleAnswer& answer = cell.samples[example.sample].answers[0];
  const std::vector<int32_t> ids = eval::first_digit_context(tokenizer, form, prompt);
  const auto row = static_cast<int64_t>(ids.size()) - 1;
  model::Context context(model, row + 1);
  if (row > 0) context.extend(std::span(ids).first(ids.size() - 1), 1);
  analysis::MapRow rows(row);
  const attention::Taps taps{{&rows}, {}};
  context.extend(std::span(ids).last(1), 1, &taps);
  json out = {{"tokens", token_texts(tokenizer, ids)},
              {"number", {prompt.numbers[0].begin, prompt.numbers[0].end}},
              {"city", answer.asked.city},
              {"answer", answer.asked.number},
              {"text", answer.text},
              {"right", answer.right},
              {"length", cell.length},
              {"depth", cell.depth},
              {"sample", example.sample},
              {"layers", json::array()}};
  for (const analysis::LayerRow& layer : rows.layers()) {
    const bool noise = !layer.noise.empty();
    out["layers"].push_back({{"layer", layer.layer},
                             {"positive", rounded(layer.positive)},
                             {"noise", noise ? rounded(layer.noise) : json()},
                             {"lambda", noise ? rounded(layer.lambda) : json()}});
  }
  return out;
}

}  // namespace unchain::cli
