#include "study/compare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "analysis/results_json.h"
#include "base/check.h"
#include "base/rng.h"
#include "cli/result_folder.h"
#include "report/table.h"
#include "study/shown_maps.h"
#include "unchain/version.h"

namespace unchain::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> models;  // PATH or NAME=PATH
  std::string out, text_file, needle_form = "sentence", choice_file, choice_form = "plain";
  int64_t window = 512, windows = 8, max_items = 0;
  size_t needles = 4;
  std::vector<std::string> metrics;
};

// The text that is read where none is named: sentences of no importance, the same as around needles.
std::string neutral_text(size_t sentences) {
  const text::Haystack haystack;
  text::Haystack::Run run(haystack, Rng(0));
  std::string text;
  for (size_t s = 0; s < sentences; ++s) text += run.next();
  return text;
}

std::pair<std::string, std::string> name_and_path(const std::string& model) {
  const size_t equal = model.find('=');
  if (equal != std::string::npos && equal > 0 && model.find('/') > equal)
    return {model.substr(0, equal), model.substr(equal + 1)};
  std::filesystem::path path = model;
  if (!path.has_filename()) path = path.parent_path();
  return {path.filename().string(), model};
}

std::string number(const ordered_json& value) {
  return value.is_null() ? "-" : fmt::format("{:.4g}", value.get<double>());
}

// A line a measure: each model's mean, and how far the others are from the first.
std::string show(const ordered_json& results) {
  report::TextTable table;
  using enum report::TextTable::Align;
  table.column("measure");
  for (const ordered_json& model : results["models"]) table.column(model["name"].get<std::string>(), right);
  for (size_t m = 1; m < results["models"].size(); ++m)
    table.column(results["models"][m]["name"].get<std::string>() + " - " +
                     results["models"][0]["name"].get<std::string>() + " [95 %]",
                 right);
  // Of other numbers of tokens they cannot be compared; bits a byte can.
  std::vector<std::string> perplexity = {"perplexity"};
  std::set<int64_t> tokens;
  for (const ordered_json& model : results["models"]) {
    perplexity.push_back(number(model["perplexity"]));
    tokens.insert(model["tokens"].get<int64_t>());
  }
  perplexity.resize(2 * results["models"].size(), "-");
  if (tokens.size() == 1) table.row(perplexity);
  for (const auto& [measure, unused] : results["models"][0]["measures"].items()) {
    std::vector<std::string> row = {measure};
    bool any = false;
    for (const ordered_json& model : results["models"]) {
      const ordered_json& value = model["measures"][measure];
      any = any || !value.is_null();
      row.push_back(value.is_null() ? "-" : number(value["mean"]));
    }
    for (size_t m = 1; m < results["models"].size(); ++m) {
      std::string cell = "-";
      for (const ordered_json& pair : results["paired"]) {
        if (pair["measure"] != measure || pair["model"] != results["models"][m]["name"]) continue;
        cell = fmt::format("{:+.4g} [{}, {}]", pair["difference"].get<double>(), number(pair["low"]),
                           number(pair["high"]));
      }
      row.push_back(cell);
    }
    if (any) table.row(row);
  }
  return table.text();
}

void run(const Common& common, const Options& options) {
  prepare(common);
  if (options.models.size() < 2) fail(ErrorCode::usage, "compare: give two models or more");
  if (options.window < 4) fail(ErrorCode::usage, "--window {}: expected at least 4 tokens", options.window);
  if (options.windows < 2)
    fail(ErrorCode::usage, "--windows {}: expected 2 or more, since a difference over one has no interval",
         options.windows);
  const auto selection = analysis::parse_selection(options.metrics);
  std::optional<eval::ChoiceSet> questions;
  const auto form = eval::parse_choice_template(options.choice_form);
  if (!options.choice_file.empty())
    questions = eval::read_choices(read_text_file(options.choice_file), options.choice_file, options.max_items);
  std::vector<study::ComparedModel> models;
  std::set<std::string> names;
  for (const std::string& each : options.models) {
    if (const std::string name = name_and_path(each).first; !names.insert(name).second)
      fail(ErrorCode::usage, "compare: two models are called {}; name them, as in one={} two=…", name, each);
  }
  for (const std::string& each : options.models) {
    const auto [name, path] = name_and_path(each);
    const model::ModelFile file = model::ModelFile::open(path);
    warn_beyond_context(file, options.window, fmt::format("{}: --window {}", name, options.window));
    study::ComparedModel& model = models.emplace_back();
    model.name = name;
    model.tokenizer = open_tokenizer(file, common, "compare needs one");
    model.model = model::load(file, common.type());
  }
  const bool bos = models[0].tokenizer->add_bos;
  const std::string text = options.text_file.empty()
                               ? neutral_text(static_cast<size_t>(options.window * options.windows / 4))
                               : read_text_file(options.text_file);
  const auto parts = study::cut_text(*models[0].tokenizer, text, options.window - (bos ? 1 : 0), options.windows);
  if (static_cast<int64_t>(parts.size()) < options.windows) {
    std::fprintf(stderr, "note: the text fills %zu windows of %ld tokens, not %ld\n", parts.size(),
                 static_cast<long>(options.window), static_cast<long>(options.windows));
  }
  make_result_folder(options.out);
  eval::NeedleOptions needle;
  const bool ask = options.needle_form != "none";
  if (ask) {
    needle.form = text::parse_needle_form(options.needle_form);
    needle.lengths = {options.window};
    needle.needles = options.needles;
    needle.seed = common.seed;
  }
  for (study::ComparedModel& model : models) {
    const auto step = [&](const char* what, const char* unit, const auto& work) {
      Progress progress(model.name + ", " + what, unit, 1);
      work([&](size_t done, size_t all) { progress.show(done, all); });
    };
    step("windows", "layers", [&](const study::CompareProgress& progress) {
      study::compare_windows(model, parts, selection, common.seed, progress);
    });
    if (ask) {
      step("needles", "tokens",
           [&](const study::CompareProgress& progress) { study::compare_needles(model, needle, progress); });
    }
    if (questions) {
      step("questions", "tokens",
           [&](const study::CompareProgress& progress) { study::compare_choices(model, *questions, form, progress); });
    }
  }
  ordered_json settings = describe_run(common, models[0].model->dtype);
  settings.update({{"text", options.text_file.empty() ? "neutral sentences" : options.text_file},
                   {"window", options.window},
                   {"windows", parts.size()},
                   {"needles", ask ? ordered_json(options.needle_form) : ordered_json()},
                   {"choice", options.choice_file.empty() ? ordered_json() : ordered_json(options.choice_file)},
                   {"seed", common.seed}});
  ordered_json results = {{"schema", analysis::kResultsSchema},
                          {"command", "compare"},
                          {"version", UNCHAIN_VERSION},
                          {"settings", settings}};
  results.update(study::comparison_json(models, common.seed));
  for (size_t m = 0; m < models.size(); ++m) {
    Common named = common;
    named.model = name_and_path(options.models[m]).second;
    results["models"][m]["model"] = describe_model(named, *models[m].model);
  }
  nlohmann::json maps = nlohmann::json::array();
  for (const study::ComparedModel& model : models) {
    maps.push_back(study::shown_maps(model.name, model.model, *model.tokenizer,
                                     model.tokenizer->encode_with_bos(parts.front()),
                                     study::kMapBytes / static_cast<int64_t>(models.size())));
  }
  const std::string files = write_results(options.out, results, {{"models", maps}});
  print_result(common, results, show(results) + "\n" + files);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto* command = app.add_subcommand(
      "compare", "models on the same text, side by side: loss, needles, questions, attention; paired differences");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  command
      ->add_option(
          "models", options->models,
          "two or more GGUF files, Hugging Face folders or run folders, each PATH or NAME=PATH; the others are "
          "set against the first")
      ->type_name("MODEL …");
  command->add_option("--text", options->text_file, "text to read; default: sentences of no importance")
      ->type_name("FILE")
      ->group("Text");
  command->add_option("--window", options->window, "tokens of a window, and of a prompt with needles")
      ->default_val(512)
      ->group("Text");
  command->add_option("--windows", options->windows, "how many windows")->default_val(8)->group("Text");
  add_pretokenizer(*command, *common, "Text");
  command
      ->add_option("--metrics", options->metrics,
                   "what to measure of attention: all, groups (rows, rank, block, references, redundancy) or measures "
                   "by name")
      ->delimiter(',')
      ->type_name("NAME,…")
      ->group("Measures");
  command
      ->add_option("--needle-form", options->needle_form,
                   "sentence or pair: how needles are written (unchain needle --help); none: no needles")
      ->default_val("sentence")
      ->check(CLI::IsMember({"sentence", "pair", "none"}))
      ->group("Needles");
  command->add_option("--needles", options->needles, "needles in a prompt")
      ->default_val(4)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Needles");
  command->add_option("--choice", options->choice_file, "questions or last words too: a file as of unchain choice")
      ->type_name("FILE")
      ->group("Questions");
  command->add_option("--template", options->choice_form, "plain or question")
      ->default_val("plain")
      ->group("Questions");
  command->add_option("--max-items", options->max_items, "the first so many of them; 0: all")
      ->default_val(0)
      ->check(CLI::Range(0, 1 << 30))
      ->group("Questions");
  add_result_folder(*command, options->out);
  add_seed(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
