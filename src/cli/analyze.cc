#include <chrono>
#include <set>

#include "analysis/maps_file.h"
#include "analysis/results_json.h"
#include "analysis/token_texts.h"
#include "base/check.h"
#include "base/thread.h"
#include "cli/result_folder.h"
#include "cli/text_source.h"
#include "eval/windows.h"
#include "model/context.h"
#include "report/table.h"
#include "unchain/version.h"

namespace unchain::cli {
namespace {

struct Options {
  std::string out, maps, ids_file;
  int64_t window = 512, windows = 8;
  std::vector<std::string> metrics;
};

std::string show(const std::optional<analysis::Summary>& value) {
  if (!value) return "-";
  if (!value->interval) return fmt::format("{:.4g} [one window]", value->mean);
  return fmt::format("{:.4g} [{:.4g}, {:.4g}]", value->mean, value->interval->low, value->interval->high);
}

// The summary over all heads, and which head is the extreme one.
std::string summary_table(const analysis::AnalysisResults& results) {
  report::TextTable table;
  table.column("measure").column("mean over heads [95 %]").column("highest head").column("lowest head");
  const auto extreme = [](const std::optional<analysis::Extreme>& e) {
    return e ? fmt::format("{:.4g} (layer {}, head {})", e->value, e->layer, e->head) : "-";
  };
  for (size_t m = 0; m < analysis::kMeasureCount; ++m) {
    const auto& value = results.summary[0][m];
    if (value)
      table.row({std::string(analysis::info(static_cast<analysis::Measure>(m)).name), show(value),
                 extreme(results.highest[m]), extreme(results.lowest[m])});
  }
  if (results.cosine_distance) table.row({"cosine_distance", show(results.cosine_distance), "-", "-"});
  if (results.cka) table.row({"cka", show(results.cka), "-", "-"});
  const std::string text = table.text();
  return text + (text.find("[one window]") == text.npos ? "" : "[one window]: no interval\n");
}

void write_outputs(const Common& common, const Options& options, const analysis::AnalysisResults& results,
                   const analysis::Selection& selection, analysis::ResultsHeader header) {
  header.command = "analyze";
  header.version = UNCHAIN_VERSION;
  const nlohmann::json json = analysis::results_json(results, selection, header);
  const std::string files = write_results(options.out, json, analysis::page_extras(results));
  print_result(common, json, summary_table(results) + "\n" + files);
}

// Maps come without model and text: of the options only those of measuring and of output make sense with them.
void refuse_beside_maps(const CLI::App& command) {
  const std::set<std::string> known = {"--maps", "--metrics", "--out", "--seed", "--threads", "--json"};
  std::vector<std::string> others;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    if (option->count() > 0 && !known.contains("--" + name))
      others.push_back(option->get_positional() ? option->get_type_name() : "--" + name);
  }
  if (!others.empty())
    fail(ErrorCode::usage, "--maps: takes the place of a model and its text; leave out {}", fmt::join(others, ", "));
}

void run_maps(const Common& common, const Options& options) {
  const auto selection = analysis::parse_selection(options.metrics);
  const analysis::MapsFile file = analysis::MapsFile::open(options.maps);
  make_result_folder(options.out);
  analysis::AnalysisOptions settings;
  settings.selection = selection;
  settings.seed = common.seed;
  const auto results = analysis::analyze_maps(file, settings);
  const nlohmann::json model = {{"name", file.model().empty() ? options.maps : file.model()}};
  write_outputs(common, options, results, selection,
                {"",
                 "",
                 {{"maps", options.maps},
                  {"windows", 1},
                  {"window", file.tokens()},
                  {"seed", common.seed},
                  {"threads", threads()}},
                 model});
}

// The windows of the text or ids: disjoint, all of one length. A text that is too short for one shrinks the window.
std::vector<std::vector<int32_t>> make_windows(const std::vector<int32_t>& text, int32_t bos, Options& options) {
  const int64_t front = bos >= 0 ? 1 : 0, have = static_cast<int64_t>(text.size());
  if (options.window < 4) fail(ErrorCode::usage, "--window {}: expected at least 4 tokens", options.window);
  if (options.windows < 1) fail(ErrorCode::usage, "--windows {}: expected at least 1", options.windows);
  if (have + front < options.window) {
    if (have + front < 4) fail(ErrorCode::format, "text: has {} tokens, at least 4 are needed", have + front);
    std::fprintf(stderr, "note: the text has only %ld tokens, so --window shrinks from %ld to that\n",
                 static_cast<long>(have + front), static_cast<long>(options.window));
    options.window = have + front;
  }
  const int64_t room = options.window - front, whole = have / room;
  if (whole < options.windows) {
    std::fprintf(stderr, "note: the text fills %ld windows of %ld tokens, not %ld\n", static_cast<long>(whole),
                 static_cast<long>(options.window), static_cast<long>(options.windows));
    options.windows = whole;
  }
  eval::WindowOptions cut;
  cut.window = options.window;
  cut.max_windows = options.windows;
  std::vector<std::vector<int32_t>> result;
  for (eval::Window& window : eval::cut_windows(text, bos, cut)) result.push_back(std::move(window.ids));
  return result;
}

void run_model(const Common& common, const TextSource& source, Options options) {
  const auto selection = analysis::parse_selection(options.metrics);
  const model::ModelFile file = model::ModelFile::open(common.model);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<int32_t> text;
  int32_t bos = -1;
  if (!options.ids_file.empty()) {
    if (source.has_text() || source.has_file())
      fail(ErrorCode::usage, "--ids: takes the place of a text, give one of them");
    text = read_ids(options.ids_file, file.config().vocabulary);
    try {
      // Only for the pieces on the page.
      tokenizer = open_tokenizer(file, common, "they are the same in every figure");
    } catch (const Error& error) {
      std::fprintf(stderr, "note: no tokenizer, so the page shows ids (%s)\n", error.what());
    }
  } else {
    tokenizer = open_tokenizer(file, common, "give the tokens as --ids FILE");
    bos = tokenizer->add_bos ? tokenizer->bos : -1;
    text = encode_text(*tokenizer, read_source_text(source), source.name(), common, false);
  }
  const auto windows = make_windows(text, bos, options);
  warn_beyond_context(file, options.window, fmt::format("--window {}", options.window));
  make_result_folder(options.out);
  const auto model = model::load(file, common.type());
  const model::Config& c = model->config;
  analysis::AnalysisOptions settings;
  settings.selection = selection;
  settings.seed = common.seed;
  Progress progress("analyze", "layers", 1);
  const size_t steps = windows.size() * c.layers.size();
  settings.progress = [&](int64_t window, int layer) {
    progress.show(static_cast<size_t>(window) * c.layers.size() + static_cast<size_t>(layer) + 1, steps);
  };
  analysis::MapAnalyzer analyzer(settings);
  model::Context context(model, options.window);
  const attention::Taps taps{{&analyzer}, {}};
  const auto start = std::chrono::steady_clock::now();
  for (const std::vector<int32_t>& ids : windows) {
    analyzer.begin_window(static_cast<int64_t>(ids.size()), ids, analysis::token_texts(tokenizer.get(), ids));
    context.truncate(0);
    context.extend(ids, -1, &taps);
    analyzer.end_window();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  nlohmann::json run = describe_run(common, model->dtype);
  run.update({{"text", source.has_file()          ? source.file
                       : options.ids_file.empty() ? "--text"
                                                  : options.ids_file},
              {"window", options.window},
              {"windows", windows.size()},
              {"bos", bos >= 0},
              {"seed", common.seed},
              {"seconds", seconds}});
  write_outputs(common, options, analyzer.results(), selection, {"", "", run, describe_model(common, *model)});
}

}  // namespace

void add_analyze(CLI::App& app) {
  auto* command = app.add_subcommand(
      "analyze", "measure every attention head over windows of a text; writes results.json and report.html");
  auto common = std::make_shared<Common>();
  auto source = std::make_shared<TextSource>();
  auto options = std::make_shared<Options>();
  command->add_option("model", common->model, "GGUF file, Hugging Face folder, or run folder; not with --maps")
      ->type_name("MODEL");
  add_text_source(*command, *source, false, true);
  command->add_option("--ids", options->ids_file, "file of token ids in place of a text, taken as they are")
      ->type_name("FILE")
      ->group("Text");
  command
      ->add_option("--maps", options->maps,
                   "analyse the maps of this file (safetensors) in place of a model; docs/maps-from-pytorch.md")
      ->type_name("FILE")
      ->group("Text");
  add_text_reading(*command, *common);
  command->add_option("--window", options->window, "tokens of a window")->default_val(512)->group("Windows");
  command->add_option("--windows", options->windows, "how many windows")->default_val(8)->group("Windows");
  command
      ->add_option("--metrics", options->metrics,
                   "what to measure: all, groups (rows, rank, block, references, redundancy) or measures by name")
      ->delimiter(',')
      ->type_name("NAME,…")
      ->group("Measures");
  add_result_folder(*command, options->out);
  add_seed(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, source, options, command] {
    if (!options->maps.empty()) refuse_beside_maps(*command);
    prepare(*common);
    if (!options->maps.empty()) {
      return run_maps(*common, *options);
    }
    if (common->model.empty()) fail(ErrorCode::usage, "analyze: give a MODEL, or --maps FILE");
    run_model(*common, *source, *options);
  });
}

}  // namespace unchain::cli
