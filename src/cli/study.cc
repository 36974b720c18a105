#include "study/study.h"

#include <cstdio>
#include <optional>

#include "analysis/results_json.h"
#include "base/check.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/result_folder.h"
#include "report/table.h"
#include "study/observe.h"
#include "unchain/version.h"

namespace unchain::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Options {
  std::string file, preset;
  std::vector<std::string> settings;
  std::string out;
  bool resume = false;
};

// Where the description comes from, and its text.
std::pair<std::string, std::string> source(const Options& options) {
  if (options.file.empty() == options.preset.empty())
    fail(ErrorCode::usage, "give a description or --preset smoke: one of them");
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

std::string show(const ordered_json& results) {
  report::TextTable table;
  using enum report::TextTable::Align;
  table.column("track").column("size").column("member");
  for (const char* column : {"seed", "parameters", "to softmax", "perplexity", "bits a byte", "needles",
                             "95 % interval", "chance", "tokens/s"})
    table.column(column, right);
  for (const ordered_json& run : results["runs"]) {
    if (run["pilot"].get<bool>()) continue;
    if (run.contains("failed")) {
      table.row(
          {run["track"], run["size"], run["member"], run["seed"].dump(), "failed", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    std::string change = "-";
    for (const ordered_json& other : results["runs"]) {
      if (other["member"] != "softmax" || other["size"] != run["size"] || other.contains("failed")) continue;
      change =
          fmt::format("{:+.1f} %", 100 * (run["parameters"].get<double>() / other["parameters"].get<double>() - 1));
    }
    std::string accuracy = "-", interval = "-", chance = "-";
    for (const ordered_json& needle : run["needle"]) {
      accuracy = percent(needle["accuracy"]);
      interval = percent(needle["low"]) + " to " + percent(needle["high"]);
      chance = percent(needle["chance"]);
    }
    table.row({run["track"], run["size"], run["member"], run["seed"].dump(), run["parameters"].dump(), change,
               fmt::format("{:.3f}", run["perplexity"].get<double>()),
               fmt::format("{:.4f}", run["bits_per_byte"].get<double>()), accuracy, interval, chance,
               fmt::format("{:.0f}", run["tokens_per_s"].get<double>())});
  }
  return table.text();
}

// A line a claim that its runs say something of.
std::string show_claims(const ordered_json& results) {
  report::TextTable table;
  using enum report::TextTable::Align;
  table.column("claim", right).column("what is claimed").column("verdict").column("seeds", right);
  bool any = false;
  for (const ordered_json& claim : results["claims"]) {
    if (claim["verdict"].is_null()) continue;
    any = true;
    table.row({claim["id"].dump(), claim["statement"], claim["verdict"], claim["parts"][0]["seeds"].dump()});
  }
  return any ? "\n" + table.text() : "";
}

void judge_and_write(const Common& common, const Options& options, const std::string& where,
                     const std::vector<ordered_json>& done) {
  const study::Claims claims = study::parse_claims(std::string(study::claims_text()), "study/claims.json");
  ordered_json judged = ordered_json::array();
  for (const study::ClaimResult& result : study::judge(claims, study::observe(claims, done)))
    judged.push_back(study::to_json(result, claims));
  const ordered_json results = {{"schema", analysis::kResultsSchema},
                                {"command", "study"},
                                {"version", UNCHAIN_VERSION},
                                {"settings", {{"description", where}, {"set", options.settings}}},
                                {"claims", judged},
                                {"runs", done}};
  const std::string files = write_results(options.out, results, {});
  print_result(common, results, show(results) + show_claims(results) + "\n" + files);
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
    progress.reset();  // the bar begins again on its own line
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
  if (done.size() < runs.size()) {
    if (first) {
      std::fprintf(stderr, "stopped after %zu of %zu runs, all saved; the same command with --resume goes on\n",
                   done.size(), runs.size());
    }
    return true;
  }
  if (first) judge_and_write(common, options, where, done);
  return false;
}

void run(const Common& common, const Options& options) {
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
                   "a description of the program's own: smoke (about 2 minutes), small (about 5 hours)")
      ->type_name("NAME")
      ->group("Runs");
  command
      ->add_option("--set", options->settings,
                   "one value of every run's configuration, as in --set data.train=my.txt; may be given often")
      ->type_name("KEY=VALUE")
      ->group("Runs");
  command->add_flag("--resume", options->resume, "go on with the study in the folder: what is done stays")
      ->group("Runs");
  command->add_option("-o,--out", options->out, "folder for runs/, vocabulary/, results.json and report.html")
      ->required()
      ->type_name("DIR")
      ->group("Output");
  command->add_option("--threads", common->threads, "threads to use; 0: one a processor")
      ->default_val(0)
      ->group("Compute")
      ->check(CLI::Range(0, 4096));
  add_output(*command, *common);
  command->callback([common, options] { run(*common, *options); });
}

}  // namespace unchain::cli
