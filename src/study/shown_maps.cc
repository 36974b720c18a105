#include "study/shown_maps.h"

#include <algorithm>

#include "analysis/analyzer.h"
#include "analysis/results_json.h"
#include "analysis/token_texts.h"
#include "base/check.h"
#include "base/file.h"
#include "model/context.h"
#include "model/model_file.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The members that stand side by side on a page of claims.
constexpr const char* kShownRoles[] = {"twin", "diff", "variant"};

json maps_of_file(const std::string& name, const fs::path& path, const std::string& text, int64_t window) {
  const model::ModelFile file = model::ModelFile::open(path);
  const auto tokenizer = file.tokenizer();
  // No piece of a vocabulary that a study makes is longer, and a window that is not full is shown as well.
  constexpr size_t kBytesAToken = 32;
  auto ids = tokenizer->encode_with_bos(text.substr(0, static_cast<size_t>(window) * kBytesAToken));
  ids.resize(std::min(ids.size(), static_cast<size_t>(window)));
  return shown_maps(name, model::load(file, model::default_dtype()), *tokenizer, ids,
                    kMapBytes / static_cast<int64_t>(std::size(kShownRoles)));
}

}  // namespace

json shown_maps(const std::string& name, const std::shared_ptr<const model::Transformer>& model,
                const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> ids, int64_t bytes) {
  analysis::AnalysisOptions options;
  // The page begins with the head that has most of the first; the others come with the spectra.
  options.selection = analysis::parse_selection({"induction_mass", "block_rank_entropy", "block_rank_stable"});
  options.excerpt_bytes = bytes;
  analysis::MapAnalyzer analyzer(options);
  analyzer.begin_window(static_cast<int64_t>(ids.size()), ids, analysis::token_texts(&tokenizer, ids));
  const attention::Taps taps{{&analyzer}, {}};
  model::Context context(model, static_cast<int64_t>(ids.size()));
  context.extend(ids, -1, &taps);
  analyzer.end_window();
  const analysis::AnalysisResults results = analyzer.results();
  json shown = analysis::page_extras(results);
  shown.erase("histograms");
  shown["name"] = name;
  shown["layers"] = analysis::results_json(results, options.selection, {})["layers"];
  return shown;
}

json maps_of_runs(const std::vector<PlannedRun>& runs, const fs::path& study, const Claims& claims,
                  const std::function<void(const std::string& note)>& on_note) {
  json models = json::array();
  for (const char* role : kShownRoles) {
    const std::string& member = claims.roles.at(role);
    for (const PlannedRun& run : runs) {
      const fs::path folder = study / "runs" / run.name();
      if (run.pilot || run.member != member || !fs::exists(folder / "result.json") || !fs::exists(folder / "model"))
        continue;
      try {
        const std::string text = read_text(run.config.data.valid.front());
        models.push_back(
            maps_of_file(member + ", " + run.track + ", " + run.size, folder, text, run.config.train.context));
        break;
      } catch (const Error& error) {
        on_note(fmt::format("{}: the page does not show its maps: {}", run.name(), error.what()));
      }
    }
  }
  return models;
}

json maps_of_given(const std::vector<GivenModel>& models, const GivenOptions& options, const Claims& claims) {
  json shown = json::array();
  for (const char* role : kShownRoles) {
    const auto found = std::ranges::find(models, claims.roles.at(role), &GivenModel::member);
    if (found != models.end()) shown.push_back(maps_of_file(found->member, found->path, options.text, options.window));
  }
  return shown;
}

}  // namespace unchain::study
