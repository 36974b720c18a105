#include "eval/needle.h"

#include <optional>

#include "analysis/results_json.h"
#include "analysis/summary.h"
#include "base/check.h"
#include "cli/needle_row.h"
#include "cli/result_folder.h"
#include "report/table.h"
#include "unchain/version.h"

namespace unchain::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string out, form = "sentence", haystack;
  std::vector<double> depths = {0, 25, 50, 75, 100};  // per cent
  eval::NeedleOptions needles;
};

json to_json(const eval::Proportion& proportion) {
  const auto interval = eval::wilson_interval(proportion);
  return {{"asked", proportion.asked},
          {"right", proportion.right},
          {"accuracy", proportion.value()},
          {"low", interval.low},
          {"high", interval.high}};
}

// Summaries whose unit is a sample: its prompts of all lengths and depths hold the same needles, so they count as one.
class Attention {
 public:
  Attention(const eval::NeedleResult& result, uint64_t seed) : result_(result), bootstrap_(seed) {}

  // Of what `value` makes of each answer, in one cell or in all.
  template <class Value>
  json summary(const Value& value, const eval::NeedleCell* cell = nullptr) {
    std::vector<double> sums;
    std::vector<int64_t> counts;
    for (const eval::NeedleCell& each : result_.cells) {
      if (cell && cell != &each) continue;
      sums.resize(each.samples.size(), 0);
      counts.resize(each.samples.size(), 0);
      for (size_t s = 0; s < each.samples.size(); ++s) {
        for (const eval::NeedleAnswer& answer : each.samples[s].answers) {
          sums[s] += value(answer);
          ++counts[s];
        }
      }
    }
    std::vector<std::optional<double>> means;
    for (size_t s = 0; s < sums.size(); ++s) means.emplace_back(sums[s] / static_cast<double>(counts[s]));
    return analysis::summary_json(bootstrap_.summarise(means), "attention on the answer");
  }

 private:
  const eval::NeedleResult& result_;
  analysis::Bootstrap bootstrap_;
};

json cell_json(const eval::NeedleCell& cell, Attention& attention) {
  double depth = 0, tokens = 0;
  json samples = json::array();
  for (size_t s = 0; s < cell.samples.size(); ++s) {
    const eval::NeedleSample& sample = cell.samples[s];
    depth += sample.depth / static_cast<double>(cell.samples.size());
    tokens += static_cast<double>(sample.prompt_tokens) / static_cast<double>(cell.samples.size());
    json answers = json::array();
    for (const eval::NeedleAnswer& answer : sample.answers)
      answers.push_back({{"city", answer.asked.city},
                         {"number", answer.asked.number},
                         {"text", answer.text},
                         {"right", answer.right},
                         {"attention_on_answer", eval::mean_attention(answer)}});
    samples.push_back(
        {{"sample", s}, {"real_depth", sample.depth}, {"prompt_tokens", sample.prompt_tokens}, {"answers", answers}});
  }
  json out = {{"length", cell.length},
              {"depth", cell.depth},
              {"real_depth", depth},
              {"prompt_tokens", tokens},
              {"first", to_json(cell.first)},
              {"attention_on_answer", attention.summary(eval::mean_attention, &cell)},
              {"samples", samples}};
  out.update(to_json(cell.all));
  return out;
}

json layers_json(const eval::NeedleResult& result, Attention& attention) {
  json layers = json::array();
  const auto& shape = result.cells[0].samples[0].answers[0].attention;
  for (size_t l = 0; l < shape.size(); ++l) {
    json heads = json::array();
    for (size_t h = 0; h < shape[l].size(); ++h)
      heads.push_back({{"attention_on_answer",
                        attention.summary([&](const eval::NeedleAnswer& answer) { return answer.attention[l][h]; })}});
    layers.push_back({{"layer", l}, {"heads", heads}});
  }
  return layers;
}

json results_json(const Common& common, const Options& options, const eval::NeedleResult& result, json run,
                  const json& model) {
  const auto accuracy = eval::wilson_interval(result.accuracy);
  run.update({{"form", options.form},
              {"lengths", options.needles.lengths},
              {"depths", options.needles.depths},
              {"needles", options.needles.needles},
              {"queries", options.needles.queries},
              {"samples", options.needles.samples},
              {"haystack", options.haystack.empty() ? "neutral sentences" : options.haystack},
              {"seed", common.seed},
              {"seconds", result.seconds}});
  Attention attention(result, common.seed);
  json out = {{"schema", analysis::kResultsSchema},
              {"command", "needle"},
              {"version", UNCHAIN_VERSION},
              {"settings", run},
              {"model", model},
              {"accuracy", result.accuracy.value()},
              {"accuracy_low", accuracy.low},
              {"accuracy_high", accuracy.high},
              {"right", result.accuracy.right},
              {"asked", result.accuracy.asked},
              {"chance", 1 / static_cast<double>(options.needles.needles)},
              {"attention_on_answer", attention.summary(eval::mean_attention)},
              {"tokens_per_s", static_cast<double>(result.tokens_read) / result.seconds},
              {"cells", json::array()},
              {"layers", layers_json(result, attention)}};
  for (const eval::NeedleCell& cell : result.cells) out["cells"].push_back(cell_json(cell, attention));
  return out;
}

std::string show(const json& results) {
  report::TextTable table;
  using enum report::TextTable::Align;
  for (const char* column : {"length", "depth", "real depth", "right", "accuracy", "95 % interval", "attention"})
    table.column(column, right);
  const auto percent = [](const json& share) { return fmt::format("{:.1f} %", 100 * share.get<double>()); };
  for (const json& cell : results["cells"]) {
    table.row({cell["length"].dump(), percent(cell["depth"]), percent(cell["real_depth"]),
               cell["right"].dump() + "/" + cell["asked"].dump(), percent(cell["accuracy"]),
               percent(cell["low"]) + " to " + percent(cell["high"]), percent(cell["attention_on_answer"]["mean"])});
  }
  return table.text() + fmt::format(
                            "\naccuracy             {} ({} of {}), 95 % interval {} to {}; chance {}\n"
                            "attention on answer  {} of the weight, mean over layers and heads\n",
                            percent(results["accuracy"]), results["right"].dump(), results["asked"].dump(),
                            percent(results["accuracy_low"]), percent(results["accuracy_high"]),
                            percent(results["chance"]), percent(results["attention_on_answer"]["mean"]));
}

void run(const Common& common, Options options) {
  prepare(common);
  options.needles.form = text::parse_needle_form(options.form);
  options.needles.seed = common.seed;
  options.needles.depths.clear();
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 100)) fail(ErrorCode::usage, "--depths {}: expected 0 to 100 per cent", depth);
    options.needles.depths.push_back(depth / 100);
  }
  std::optional<text::Haystack> haystack;
  options.haystack.empty() ? haystack.emplace() : haystack.emplace(read_text_file(options.haystack), options.haystack);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto tokenizer = open_tokenizer(file, common, "needle needs one");
  const auto tasks = eval::plan_needles(*tokenizer, *haystack, options.needles);
  for (const int64_t length : options.needles.lengths)
    warn_beyond_context(file, length, fmt::format("--lengths {}", length));
  make_result_folder(options.out);
  const auto model = model::load(file, common.type());
  eval::NeedleResult result;
  {
    Progress progress("needle", "tokens", 1);
    result = eval::ask_needles(model, *tokenizer, options.needles.form, tasks,
                               [&](size_t done, size_t total) { progress.show(done, total); });
  }
  const json results =
      results_json(common, options, result, describe_run(common, model->dtype), describe_model(common, *model));
  const json extras = {{"needle_row", needle_row(model, *tokenizer, options.needles.form, tasks, result)}};
  const std::string files = write_results(options.out, results, extras);
  print_result(common, results, show(results) + "\n" + files);
}

}  // namespace

void add_needle(CLI::App& app) {
  auto* command =
      app.add_subcommand("needle", "hide numbers in long texts and ask for them; writes results.json and report.html");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  eval::NeedleOptions& needles = options->needles;
  add_model(*command, *common);
  command
      ->add_option("--form", options->form,
                   "sentence: 'The magic number of CITY is NUMBER.'; pair: 'Kamark42;', for models trained on it")
      ->default_val("sentence")
      ->check(CLI::IsMember({"sentence", "pair"}))
      ->group("Prompts");
  command->add_option("--lengths", needles.lengths, "tokens of a prompt with its questions and answers")
      ->delimiter(',')
      ->default_str("256,512")
      ->group("Prompts");
  command->add_option("--depths", options->depths, "where the first asked needle lies, per cent of the haystack")
      ->delimiter(',')
      ->default_str("0,25,50,75,100")
      ->group("Prompts");
  command->add_option("--needles", needles.needles, "needles in a prompt")
      ->default_val(needles.needles)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Prompts");
  command->add_option("--queries", needles.queries, "how many of them are asked, one after another")
      ->default_val(needles.queries)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Prompts");
  command->add_option("--samples", needles.samples, "prompts of each length and depth")
      ->default_val(needles.samples)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Prompts");
  command
      ->add_option("--haystack", options->haystack,
                   "text between the needles; default: shuffled sentences of no importance")
      ->type_name("FILE")
      ->group("Prompts");
  add_pretokenizer(*command, *common, "Prompts");
  add_result_folder(*command, options->out);
  add_seed(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
