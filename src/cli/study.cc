#include "study/study.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <tuple>

#include "analysis/results_json.h"
#include "base/check.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/result_folder.h"
#include "report/table.h"
#include "study/given.h"
#include "study/observe.h"
#include "study/shown_maps.h"
#include "study/summary.h"
#include "unchain/version.h"

namespace unchain::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Options {
  std::string file, preset;
  std::vector<std::string> settings;
  std::vector<std::string> models;  // MEMBER=PATH,PATH…
  std::string text, calibration, needle_form = "sentence";
  int64_t window = 256, windows = 8;
  size_t needles = 4;
  std::string out;
  bool resume = false;
};

// Where the description comes from, and its text.
std::pair<std::string, std::string> source(const Options& options) {
  if (options.file.empty() == options.preset.empty())
    fail(ErrorCode::usage, "give a description, --preset smoke, or --models: one of them");
  if (options.file.empty()) return {"--preset " + options.preset, std::string(study::preset(options.preset))};
  return {options.file, read_text(options.file, size_t{1} << 20)};
}

void check_folder(const Options& options) {
  std::error_code error;
  const fs::path out = options.out;
  if (options.resume || !fs::exists(out, error)) return;
  if (!fs::is_directory(out, error)) fail(ErrorCode::io, "{}: is no folder; give another name", options.out);
  if (fs::exists(out / "runs")) {
    fail(ErrorCode::usage, "{}: holds a study already; go on with it by --resume, or give another name", options.out);
  }
  if (!fs::is_empty(out, error))
    fail(ErrorCode::usage, "{}: is no study's folder and not empty; give another name", options.out);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string range(const std::optional<study::Interval>& interval, const auto& write) {
  return interval ? write(interval->low) + " to " + write(interval->high) : "-";
}

// A line a member, size and track.
std::string show(const std::vector<study::MemberSummary>& members) {
  report::TextTable table;
  using enum report::TextTable::Align;
  table.column("track").column("size").column("member");
  for (const char* column : {"seeds", "parameters", "to softmax", "perplexity", "95 % interval", "bits a byte",
                             "needles", "95 % interval", "chance", "tokens/s", "analysis s"})
    table.column(column, right);
  const auto perplexity = [](double loss) { return fmt::format("{:.2f}", std::exp(loss)); };
  for (const study::MemberSummary& each : members) {
    const auto& [loss, bits, needles] = std::tie(each.loss_nats, each.bits_per_byte, each.needle_accuracy);
    table.row({each.track, each.size, each.member,
               each.failed ? fmt::format("{}, {} failed", each.seeds, each.failed) : std::to_string(each.seeds),
               each.parameters ? std::to_string(*each.parameters) : "-",
               each.to_softmax ? fmt::format("{:+.1f} %", 100 * *each.to_softmax) : "-",
               loss ? perplexity(loss->mean) : "-", loss ? range(loss->interval, perplexity) : "-",
               bits ? fmt::format("{:.4f}", bits->mean) : "-", needles ? percent(needles->mean) : "-",
               needles ? range(needles->interval, percent) : "-",
               each.needle_chance ? percent(*each.needle_chance) : "-",
               each.tokens_per_s ? fmt::format("{:.0f}", *each.tokens_per_s) : "-",
               each.analysis_seconds ? fmt::format("{:.0f}", *each.analysis_seconds) : "-"});
  }
  return table.text();
}

std::string number(const ordered_json& value) {
  return value.is_number() ? fmt::format("{:.3g}", value.get<double>()) : "-";
}

// "> 0.3", "2 to 5", "< floor" where nothing tells how high that is
std::string threshold(const ordered_json& part) {
  const ordered_json& at = part["threshold"];
  if (at.is_array()) return number(at[0]) + " to " + number(at[1]);
  return (part["direction"] == "below" ? "< " : "> ") + (at.is_null() ? "floor" : number(at));
}

std::string measured(const ordered_json& part) {
  return fmt::format("{} [{}, {}]", number(part["mean"]), number(part["low"]), number(part["high"]));
}

// As a reader says it: "not applicable".
std::string in_words(const ordered_json& verdict) {
  if (verdict.is_null()) return "not measured";
  std::string words = verdict;
  std::ranges::replace(words, '_', ' ');
  return words;
}

// A line a claim with the part that decides it, "12b"; "" if nothing is measured of any.
std::string show_claims(const ordered_json& results) {
  report::TextTable table;
  using enum report::TextTable::Align;
  table.column("claim", right).column("what is claimed").column("threshold", right).column("measured [95 %]", right);
  table.column("verdict").column("seeds", right).column("would decide", right);
  bool any = false;
  for (const ordered_json& claim : results["claims"]) {
    const auto at = claim["decides"].get<size_t>();
    const ordered_json &part = claim["parts"][at], &verdict = claim["verdict"];
    const std::string letter(claim["parts"].size() > 1 ? 1 : 0, static_cast<char>('a' + at));
    any = any || !verdict.is_null();
    table.row({claim["id"].dump() + letter, claim["statement"], threshold(part),
               part["seeds"] == 0 ? "-" : measured(part), in_words(verdict), part["seeds"].dump(),
               part["seeds_needed"].is_null() ? "-" : part["seeds_needed"].dump()});
  }
  return any ? "\n" + table.text() : "";
}

study::Claims read_claims() {
  return study::parse_claims(std::string(study::claims_text()), "study/claims.json");
}

ordered_json judged(const study::Claims& claims, const ordered_json& settings, const std::vector<ordered_json>& done) {
  ordered_json verdicts = ordered_json::array();
  for (const study::ClaimResult& result : study::judge(claims, study::observe(claims, done)))
    verdicts.push_back(study::to_json(result, claims));
  return {{"schema", analysis::kResultsSchema},
          {"command", "study"},
          {"version", UNCHAIN_VERSION},
          {"settings", settings},
          {"claims", verdicts},
          {"runs", done}};
}

// `maps`: the page's "models".
void write_and_tell(const Common& common, const Options& options, const study::Claims& claims,
                    const ordered_json& settings, const std::vector<ordered_json>& runs, const nlohmann::json& maps) {
  const ordered_json results = judged(claims, settings, runs);
  const std::string files = write_results(options.out, results, {{"models", maps}});
  print_result(common, results, show(study::summarize(runs, claims)) + show_claims(results) + "\n" + files);
}

// True: stopped by a signal, all saved.
bool study_as(dist::Comm& comm, const Common& common, const Options& options) {
  const bool first = comm.rank() == 0;
  prepare(common);
  const auto [where, text] = source(options);
  if (first) check_folder(options);
  comm.barrier();  // before another makes something there
  const study::Description description = study::parse_description(text, where);
  const fs::path out = options.out, vocabulary = out / "vocabulary";
  const auto runs = study::plan(description, where, vocabulary, options.settings);
  make_result_folder(options.out);
  remove_if_interrupted(vocabulary);
  study::make_vocabulary(vocabulary, description.vocabulary_size, runs.front().config.data.train);

  study::StudyOptions study;
  study.out = out;
  study.machine = describe_machine();
  study.stop = interrupted;
  std::optional<Progress> progress;
  study.on_note = [&](const std::string& note) {
    if (progress) progress->clear();
    std::fprintf(stderr, "note: %s\n", note.c_str());
  };
  const auto show = [&](const study::StudyProgress& now) {
    if (!progress) {
      progress.emplace("study", "", 0);
      progress->begin_at(static_cast<size_t>(now.work));
    }
    progress->note(fmt::format("{} of {} runs done, {}, ", now.runs_done, now.runs, now.what));
    progress->show(static_cast<size_t>(now.work), static_cast<size_t>(now.total_work));
  };
  if (first) study.progress = show;
  for (const study::PlannedRun& each : runs) remove_if_interrupted(out / "runs" / each.name() / "model");
  interrupt_gently();
  const auto done = study::carry_out(description, runs, study);
  progress.reset();
  const bool stopped = done.size() < runs.size();
  if (!first) return stopped;
  const study::Claims claims = read_claims();
  ordered_json settings = {{"description", where}, {"set", options.settings}};
  if (!stopped) {
    write_and_tell(common, options, claims, settings, done, study::maps_of_runs(runs, out, claims, study.on_note));
    return false;
  }
  settings["planned_runs"] = runs.size();
  std::string so_far;
  if (std::ranges::any_of(done, [](const ordered_json& run) { return !run["pilot"].get<bool>(); })) {
    write_results(options.out, judged(claims, settings, done),
                  {{"models", study::maps_of_runs(runs, out, claims, study.on_note)}});
    so_far = fmt::format(", what they say so far is in {}", (out / "report.html").string());
  }
  std::fprintf(stderr, "stopped after %zu of %zu runs, all saved%s; the same command with --resume goes on\n",
               done.size(), runs.size(), so_far.c_str());
  return true;
}

// The second half of a text stands for texts that are averaged over where no other is given.
void split_in_halves(std::string& text, std::string& calibration) {
  size_t middle = text.size() / 2;
  middle = std::min(text.find('\n', middle), text.find(' ', middle));
  if (middle == std::string::npos) middle = text.size() / 2;
  calibration = text.substr(middle);
  text.resize(middle);
}

void ask_models(const Common& common, const Options& options) {
  prepare(common);
  if (!options.file.empty() || !options.preset.empty() || !options.settings.empty() || options.resume)
    fail(ErrorCode::usage,
         "--models: takes the place of a description; leave out FILE.json, --preset, --set, --resume");
  if (options.text.empty())
    fail(ErrorCode::usage, "--models: give a text that no model was trained on, as --text FILE");
  if (options.window < 16) fail(ErrorCode::usage, "--window {}: expected at least 16 tokens", options.window);
  if (options.windows < 2) fail(ErrorCode::usage, "--windows {}: expected at least 2", options.windows);
  const study::Claims claims = read_claims();
  const auto models = study::parse_given(options.models, claims);
  study::GivenOptions given;
  given.text = read_text_file(options.text);
  if (options.calibration.empty()) {
    split_in_halves(given.text, given.calibration);
  } else {
    given.calibration = read_text_file(options.calibration);
  }
  given.window = options.window;
  given.keys.windows = options.windows;
  given.needle.form = text::parse_needle_form(options.needle_form);
  given.needle.lengths = {options.window};
  given.needle.needles = options.needles;
  given.needle.seed = common.seed;
  given.seed = common.seed;
  given.dtype = common.type();
  given.on_note = [](const std::string& note) { std::fprintf(stderr, "%s\n", note.c_str()); };
  for (const study::GivenModel& model : models)
    warn_beyond_context(model::ModelFile::open(model.path), options.window,
                        fmt::format("{}: --window {}", model.path, options.window));
  make_result_folder(options.out);
  const ordered_json settings = {
      {"models", options.models},
      {"text", options.text},
      {"calibration", options.calibration.empty() ? "second half of the text" : options.calibration},
      {"window", options.window},
      {"windows", options.windows},
      {"needles", options.needle_form},
      {"seed", common.seed}};
  const auto runs = study::measure_given(models, given);
  write_and_tell(common, options, claims, settings, runs, study::maps_of_given(models, given, claims));
}

void run(const Common& common, const Options& options) {
  if (!options.models.empty()) return ask_models(common, options);
  bool stopped = false;
  run_as_ranks(common, [&](dist::Comm& comm, const Common& own) { stopped = study_as(comm, own, options); });
  if (stopped) end_interrupted();
}

}  // namespace

void add_study(CLI::App& app) {
  auto* command = app.add_subcommand(
      "study",
      "train members of the family side by side, measure them, and judge what is claimed of them; 'mpirun -n K unchain "
      "study …' does K runs at a time");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  command->add_option("file", options->file, "description: JSON with comments, keys as in docs/study.md")
      ->type_name("FILE.json");
  command
      ->add_option("--preset", options->preset,
                   "a description of the program's own: smoke (about 2 minutes), small (about 5 hours), full (days)")
      ->type_name("NAME")
      ->group("Runs");
  command
      ->add_option("--set", options->settings,
                   "one value of every run's configuration, as in --set data.train=my.txt; may be given often")
      ->type_name("KEY=VALUE")
      ->group("Runs");
  command
      ->add_option("--models", options->models,
                   "in place of training: models that one has, MEMBER=PATH,PATH… each (softmax, diff, variant, or a "
                   "preset's name); paths of equal place are a pair of one seed")
      ->type_name("MEMBER=PATH …")
      ->group("Given models");
  command->add_option("--text", options->text, "text that none of them was trained on")
      ->type_name("FILE")
      ->group("Given models");
  command
      ->add_option("--calibration", options->calibration,
                   "text for means over texts; default: the second half of --text")
      ->type_name("FILE")
      ->group("Given models");
  command->add_option("--window", options->window, "tokens of a window, and of a prompt with needles")
      ->default_val(256)
      ->group("Given models");
  command->add_option("--windows", options->windows, "windows in which maps are measured")
      ->default_val(8)
      ->group("Given models");
  command->add_option("--needle-form", options->needle_form, "sentence or pair: unchain needle --help")
      ->default_val("sentence")
      ->check(CLI::IsMember({"sentence", "pair"}))
      ->group("Given models");
  command->add_option("--needles", options->needles, "needles in a prompt")
      ->default_val(4)
      ->check(CLI::Range(1, 1 << 20))
      ->group("Given models");
  add_seed(*command, *common);
  command->add_flag("--resume", options->resume, "go on with the study in the folder: what is done stays")
      ->group("Runs");
  command->add_option("-o,--out", options->out, "folder for runs/, vocabulary/, results.json and report.html")
      ->required()
      ->type_name("DIR")
      ->group("Output");
  command->add_option("--threads", common->threads, "threads to use; 0: OMP_NUM_THREADS, or one a processor")
      ->default_val(0)
      ->group("Compute")
      ->check(CLI::Range(0, 4096));
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
