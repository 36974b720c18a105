#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "cli/text_source.h"
#include "model/context.h"
#include "report/table.h"

namespace unchain::cli {
namespace {

void run(const Common& common, const TextSource& source, int64_t top) {
  prepare(common);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto [ids, tokenizer] = read_tokens(source, file, common);
  const auto count = static_cast<int64_t>(ids.size());
  warn_beyond_context(file, count, fmt::format("{} tokens", count));
  const auto model = model::load(file, common.type());
  model::Context context(model, count);
  context.extend(ids);
  std::vector<float> logits(static_cast<size_t>(model->config.vocabulary));
  context.logits(Matrix(logits.data(), 1, model->config.vocabulary), count - 1, 1);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = static_cast<size_t>(std::min<int64_t>(top, static_cast<int64_t>(order.size())));
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  order.resize(kept);
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  std::vector<double> nll(targets.size());
  context.nll(nll, targets);
  const double sum = std::accumulate(nll.begin(), nll.end(), 0.0);

  std::vector<float> top_logits;
  top_logits.reserve(order.size());
  for (const int32_t id : order) top_logits.push_back(logits[static_cast<size_t>(id)]);
  nlohmann::json result = describe_run(common, model->dtype);
  result.update({{"ids", ids}, {"top_ids", order}, {"top_logits", top_logits}, {"nll_nats", nullptr}});
  if (count > 1) result["nll_nats"] = sum / static_cast<double>(count - 1);
  report::TextTable table;
  table.column("id", report::TextTable::Align::right).column("logit", report::TextTable::Align::right);
  if (tokenizer) table.column("piece");
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<std::string> row = {std::to_string(order[i]), fmt::format("{:.5f}", top_logits[i])};
    if (tokenizer) row.push_back(order[i] < tokenizer->size() ? report::printable(tokenizer->piece(order[i])) : "");
    table.row(row);
  }
  std::string text = fmt::format("{} tokens: {}\n", count, fmt::join(ids, " "));
  if (count > 1)
    text += fmt::format("mean NLL of the tokens after the first: {:.6f} nats (perplexity {:.4f})\n",
                        sum / static_cast<double>(count - 1), std::exp(sum / static_cast<double>(count - 1)));
  print_result(common, result, text + "\n" + table.text());
}

}  // namespace

void add_logits(CLI::App& app) {
  auto* command = app.add_subcommand("logits", "the largest logits after a text, and how likely the text itself is");
  auto common = std::make_shared<Common>();
  auto source = std::make_shared<TextSource>();
  auto top = std::make_shared<int64_t>(20);
  add_model(*command, *common);
  add_text_source(*command, *source, true, false);
  command->add_option("--top", *top, "how many logits to show")
      ->default_val(20)
      ->check(CLI::Range(1, 1 << 22))
      ->group("Output");
  add_text_reading(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, source, top] { run(*common, *source, *top); });
}

}  // namespace unchain::cli
