// Every picture of a study, at every choice: what is plotted is what its CSV holds, and that is what results.json
// holds.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/page_hands.h"
#include "report/shown_table.h"

namespace unchain::report {
namespace {

// The numbers of results.json that a row of a pooled picture is made of, one a run that has it.
class Source {
 public:
  Source(const json& results, const json& shown, const Table& table) : shown_(shown), table_(table) {
    for (const json& run : results["runs"])
      if (!run.contains("failed")) runs_.push_back(run);
  }
  std::vector<double> values(size_t r) const {
    std::vector<double> found;
    for (const json& run : runs_) {
      if (run["member"] != table_.at(r, "member")) continue;
      if (const auto value = of_run(run, r)) found.push_back(*value);
    }
    return found;
  }

 private:
  static std::optional<double> known(const json& value) {
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  }
  json whole(size_t r, const std::string& column) const { return std::stoi(table_.at(r, column)); }
  static const json& at(const json& list, const std::string& key, const json& value) {
    static const json none = json::object();
    for (const json& entry : list)
      if (entry[key] == value) return entry;
    return none;
  }
  std::optional<double> of_run(const json& run, size_t r) const {
    const std::string id = shown_["id"], choice = shown_["choice"];
    const json curves = run.value("curves", json::object()), layers = run.value("layers", json::object());
    const double loss = curves.value("loss_nats", 0.0);
    if (id == "rank-loss") {
      if (table_.at(r, "fitted to") == "fixed_diff's five rows") {
        const auto found = known(curves.at(table_.at(r, "map") == "A2" ? "rows_of_a2" : "rows_of_a1"));
        return found ? std::optional(*found - loss) : std::nullopt;
      }
      const json rank = table_.at(r, "rank") == "all" ? json() : whole(r, "rank");
      const bool fixed = table_.at(r, "fitted to") == "one for all texts";
      for (const json& entry : curves.at(table_.at(r, "map") == "A2" ? "rank_of_a2" : "rank_of_a1"))
        if (entry["rank"] == rank && entry["fixed"] == fixed) return entry["loss_nats"].get<double>() - loss;
      return std::nullopt;
    }
    if (id == "layer-ranks") return known(layers[table_.at(r, "map") == "A2" ? "a2_rank" : "a1_rank"][layer(r)]);
    if (id == "terms") {
      const std::string line = table_.at(r, "line");
      const bool needles = line == "as trained" || (line == "λ = 0" && choice.starts_with("needles"));
      if (line == "as trained") return known(run["needle"][0]["accuracy_with_noise"]);
      if (needles) return known(run["needle"][0]["accuracy_without_noise"][layer(r)]);
      const std::map<std::string, std::string> keys = {{"λ", "lambda"},
                                                       {"projection of A1 on A2", "lambda_projected"},
                                                       {"λ = 0", "gain_nats"},
                                                       {"random change as large", "random_gain_nats"}};
      return known(layers[keys.at(line)][layer(r)]);
    }
    if (id == "profile") return known(layers[table_.at(r, "figure") + "_nats"][layer(r)]);
    if (id == "lambda") {
      const json& all =
          table_.at(r, "layer").empty() ? curves["lambda"] : at(curves["lambda_by_layer"], "layer", whole(r, "layer"));
      const json& line = table_.at(r, "head").empty() ? all : all["heads"][whole(r, "head").get<size_t>()];
      const std::string point = table_.at(r, "point");
      const double m = *number(table_.at(r, "m"));
      if (point != "grid") {
        if (point != "lowest, seed " + run["seed"].dump()) return std::nullopt;
        EXPECT_EQ(line["best_m"], m);
        return line["best_loss_nats"].get<double>() - loss;
      }
      for (size_t i = 0; i < line["m"].size(); ++i)
        if (line["m"][i] == m) return line["loss_nats"][i].get<double>() - loss;
      return std::nullopt;
    }
    if (id == "curves") return known(at(run["curve"], "tokens", whole(r, "tokens"))["text_loss_nats"]);
    if (id == "dynamics") {
      const json& point = at(run["curve"], "tokens", whole(r, "tokens"));
      if (choice == "gradient norm") return known(point["gradient_norm"]);
      const json& lambda = point["lambda"];
      if (!table_.at(r, "layer").empty()) return known(lambda[layer(r)]);
      return (lambda[0].get<double>() + lambda[1].get<double>()) / 2;
    }
    if (id == "hessian") {
      const json points = run.value("hessian", json::array());
      const json& point = at(points, "step", whole(r, "step"));
      if (point.empty()) return std::nullopt;
      const std::string what = table_name().substr(std::string("hessian-").size());
      if (point[what].is_object()) return known(point[what]["mean"]);
      std::vector<double> all;
      for (const json& entry : point[what]) all.push_back(entry["value"]);
      return what == "lowest" ? *std::min_element(all.begin(), all.end()) : *std::max_element(all.begin(), all.end());
    }
    ADD_FAILURE() << "no numbers are known for the picture " << id;
    return std::nullopt;
  }
  size_t layer(size_t r) const { return std::stoul(table_.at(r, "layer")); }
  std::string table_name() const {
    const std::string file = shown_["name"];
    return file.substr(0, file.size() - std::string(".csv").size());
  }
  const json& shown_;
  const Table& table_;
  std::vector<json> runs_;
};

class SlowStudyCsv : public SlowPageInBrowser {
 protected:
  // A point of a trace among the rows of the table; those found are marked in `used`.
  static void expect_point(const Table& table, const json& shown, const json& trace, size_t i, double x, double y,
                           double value, bool grid, std::vector<bool>& used) {
    const std::string name = trace.value("name", "");
    const size_t column = value_column(table, trace);
    bool found = false;
    double sum = 0;
    int count = 0;
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const auto& row = table.rows[r];
      if (!has_place(row, x, shown["x_labels"]) || (grid && !has_place(row, y, shown["y_labels"]))) continue;
      if (name == "mean of seeds") {
        if (const auto cell = number(row[column])) sum += *cell, ++count;
        continue;
      }
      if (!is_number(row[column], value) || !of_series(table, row, name)) continue;
      if (const json& bars = trace.contains("error_y") ? trace["error_y"] : json(); bars.is_object()) {
        if (!is_number(table.at(r, "least"), value - bars["arrayminus"][i].get<double>()) ||
            !is_number(table.at(r, "most"), value + bars["array"][i].get<double>()))
          continue;
      }
      found = used[r] = true;
    }
    if (name == "mean of seeds") found = count > 0 && close_to(sum / count, value);
    EXPECT_TRUE(found) << name << " at " << x << ": " << value;
  }

  static void expect_plotted(const json& shown) {
    const Table table(shown["csv"]);
    std::vector<bool> used(table.rows.size());
    for (const json& trace : shown["traces"]) {
      if (trace.value("name", "").ends_with("ten values")) continue;  // the table has the most extreme
      if (trace["type"] == "heatmap") {
        for (size_t i = 0; i < trace["z"].size(); ++i) {
          for (size_t j = 0; j < trace["z"][i].size(); ++j) {
            if (trace["z"][i][j].is_null()) continue;
            const double z = trace["z"][i][j], value = shown["id"] == "map" ? z * std::abs(z) : z;  // colour is a root
            expect_point(table, shown, trace, j, trace["x"][j], trace["y"][i], value, true, used);
          }
        }
        continue;
      }
      for (size_t i = 0; i < trace["x"].size(); ++i)
        if (trace["y"][i].is_number())
          expect_point(table, shown, trace, i, trace["x"][i], 0, trace["y"][i], false, used);
    }
    // Nothing but rank 0, which is a choice of its own, is in the table alone.
    const bool without_zero = shown["id"] == "rank-loss" && shown["choice"] != "0";
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const size_t column = value_column(table, json::object());
      if (shown["id"] == "spectra" || table.rows[r][column].empty() || (without_zero && table.at(r, "rank") == "0"))
        continue;
      EXPECT_TRUE(used[r]) << "row " << r << " is not plotted: " << json(table.rows[r]);
    }
  }

  // Claims stand at their distance from the threshold, claimed side positive, in units of the line's longest.
  static void expect_claims_plotted(const json& shown) {
    const Table table(shown["csv"]);
    const json& traces = shown["traces"];
    const json& dots = traces.back();
    ASSERT_EQ(dots["x"].size(), table.rows.size());
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const std::string threshold = table.at(r, "threshold"), side = table.at(r, "side");
      const auto estimate = number(table.at(r, "estimate"));
      if (!estimate) {
        EXPECT_TRUE(dots["x"][r].is_null()) << r;
        continue;
      }
      const size_t to = threshold.find(" to ");
      const double low = *number(threshold.substr(0, to));
      const double high = to == threshold.npos ? low : *number(threshold.substr(to + 4));
      const bool from_high = side == "below" || (side == "inside" && *estimate - low > high - *estimate);
      const auto distance = [&](double x) { return from_high ? high - x : x - low; };
      std::vector<double> ends = {distance(*number(table.at(r, "low"))), distance(*number(table.at(r, "high")))};
      std::sort(ends.begin(), ends.end());
      const double floor = number(table.at(r, "floor")).value_or(0);
      const double size = std::max({std::abs(distance(*estimate)), std::abs(ends[0]), std::abs(ends[1]), floor});
      EXPECT_NEAR(dots["x"][r].get<double>(), distance(*estimate) / size, 1e-12) << r;
      const auto has_line = [&](double from, double end) {
        return std::any_of(traces.begin(), traces.end(), [&](const json& line) {
          return line["y"] == json({r, r, nullptr}) && std::abs(line["x"][0].get<double>() - from / size) < 1e-12 &&
                 std::abs(line["x"][1].get<double>() - end / size) < 1e-12;
        });
      };
      EXPECT_TRUE(has_line(ends[0], ends[1])) << "interval of row " << r;
      EXPECT_TRUE(has_line(-floor, floor)) << "floor of row " << r;
    }
  }

  static void expect_cell(const Table& table, size_t r, const std::string& column, const json& value) {
    const std::string& cell = table.at(r, column);
    if (value.is_number()) {
      EXPECT_TRUE(is_number(cell, value)) << column << " of row " << r << ": " << cell << ", results " << value;
    } else {
      EXPECT_EQ(cell, value.is_null() ? "" : value.get<std::string>()) << column << " of row " << r;
    }
  }
  // Means over seeds, and what the seeds span.
  static void expect_pooled(const json& shown, const json& results) {
    const Table table(shown["csv"]);
    const Source source(results, shown, table);
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const std::vector<double> values = source.values(r);
      EXPECT_EQ(table.at(r, "seeds"), std::to_string(values.size())) << r;
      if (values.empty()) {
        EXPECT_EQ(table.at(r, "mean"), "");
        continue;
      }
      double sum = 0;
      for (const double value : values) sum += value;
      expect_cell(table, r, "mean", sum / static_cast<double>(values.size()));
      if (shown["id"] == "lambda" && table.at(r, "point") != "grid") continue;
      expect_cell(table, r, "least", *std::min_element(values.begin(), values.end()));
      expect_cell(table, r, "most", *std::max_element(values.begin(), values.end()));
    }
  }
  // Numbers of one run, or of the questions of all of a member's.
  static void expect_single(const json& shown, const json& results) {
    const Table table(shown["csv"]);
    for (size_t r = 0; r < table.rows.size(); ++r) {
      int64_t right = 0, asked = 0;
      for (const json& run : results["runs"]) {
        if (run.contains("failed") || run["member"] != table.at(r, "member")) continue;
        const json& needle = run["needle"][0];
        if (shown["id"] == "depths") {
          for (const json& cell : needle["cells"]) {
            if (!is_number(table.at(r, "length"), cell["length"]) || !is_number(table.at(r, "depth"), cell["depth"]))
              continue;
            right += cell["right"].get<int64_t>();
            asked += cell["asked"].get<int64_t>();
          }
        } else if (table.at(r, "seed") == run["seed"].dump()) {
          ++asked;
          if (shown["id"] == "measures") {
            expect_cell(table, r, table.columns.back(), run["measures"][table.columns.back()]["value"]);
          } else {
            for (size_t c = 4; c < table.columns.size(); ++c) {
              const std::string& column = table.columns[c];
              const bool of_run = column == "parameters" || column == "tokens_per_s";
              expect_cell(table, r, column, of_run ? run.value(column, json()) : needle.value(column, json()));
            }
            EXPECT_EQ(std::to_string(run["parameters"].get<int>()), table.at(r, "parameters"));
          }
        }
      }
      ASSERT_GT(asked, 0) << r;
      if (shown["id"] != "depths") continue;
      expect_cell(table, r, "right", right);
      expect_cell(table, r, "asked", asked);
      expect_cell(table, r, "share right", static_cast<double>(right) / static_cast<double>(asked));
    }
  }
  // All parts of all claims, or of one what stands beside its verdict too.
  static void expect_claims(const json& shown, const json& results) {
    const Table table(shown["csv"]);
    std::vector<json> parts;
    for (const json& claim : results["claims"]) {
      const bool one = shown["id"] != "claims";
      if (one && shown["name"] != "claim-" + claim["id"].dump() + ".csv") continue;
      for (const json& part : claim["parts"]) parts.push_back(part);
      if (one && claim.contains("sensitivity"))
        for (const json& part : claim["sensitivity"]) parts.push_back(part);
    }
    ASSERT_EQ(table.rows.size(), parts.size());
    for (size_t r = 0; r < parts.size(); ++r) {
      for (const char* key : {"measure", "comparison", "of", "against", "reference", "track", "size", "low", "high",
                              "floor", "detectable", "seeds"})
        expect_cell(table, r, key, parts[r][key]);
      expect_cell(table, r, "estimate", parts[r]["mean"]);
      expect_cell(table, r, "side", parts[r]["direction"]);
    }
  }
  // A picture of one member is of the chosen one, beside softmax.
  static void expect_chosen_member(const json& shown) {
    std::string member = shown["choice"];
    for (const std::string_view words : {"heads ", "of "})
      if (member.starts_with(words)) member = member.substr(words.size());
    if (member != "diff_v1" && member != "diff_v2") return;
    const Table table(shown["csv"]);
    int own = 0;
    for (size_t r = 0; r < table.rows.size(); ++r) {
      own += table.at(r, "member") == member;
      EXPECT_TRUE(table.at(r, "member") == member || table.at(r, "member") == "softmax") << json(table.rows[r]);
    }
    EXPECT_GT(own, 0);
  }
  static void expect_models(const json& shown) {
    const Table table(shown["csv"]);
    const std::string name = shown["name"];
    const json extras = study_extras();
    for (const json& model : extras["models"]) {
      if (!name.ends_with("-" + model["name"].get<std::string>() + ".csv")) continue;
      if (shown["id"] == "spectra") {
        for (size_t h = 0; h < 2; ++h) {
          const json& values = model["spectra"][0][h];
          for (size_t k = 0; k < table.rows.size(); ++k)
            expect_cell(table, k, fmt::format("head {}", h), k < values.size() ? values[k] : json());
        }
      } else {
        const bool negative = model["name"] == "diff_v2", first = name.find("head-0") != name.npos;
        const bool strong = negative == first;  // 0.16 and 0.36, else 0.04 and 0.64
        ASSERT_EQ(table.rows.size(), 3u);
        expect_cell(table, 0, "weight", 1);
        expect_cell(table, 1, "weight", strong ? (negative ? -0.16 : 0.16) : 0.04);
        expect_cell(table, 2, "weight", strong ? 0.36 : 0.64);
      }
      return;
    }
    FAIL() << "no model has " << name;
  }
};

TEST_F(SlowStudyCsv, IsWhatIsPlottedAndWhatTheResultsHold) {
  const json results = scattered_results();
  const json seen = look_at(write({results, study_extras()}, options_), 1200, kTakeAll);
  EXPECT_EQ(seen["data"].value("errors", "?"), "");
  std::map<std::string, int> pictures;
  for (const json& shown : seen["extra"]["shown"]) {
    SCOPED_TRACE(shown["id"].get<std::string>() + ", " + shown["choice"].get<std::string>());
    ++pictures[shown["id"]];
    EXPECT_TRUE(shown["name"].get<std::string>().ends_with(".csv"));
    const std::string id = shown["id"];
    if (id.starts_with("claim")) {
      expect_claims_plotted(shown);
      expect_claims(shown, results);
      continue;
    }
    expect_plotted(shown);
    if (id == "map" || id == "spectra") {
      expect_models(shown);
    } else if (id == "measures" || id == "needles" || id == "depths") {
      expect_single(shown, results);
    } else {
      expect_pooled(shown, results);
      expect_chosen_member(shown);
    }
  }
  EXPECT_EQ(pictures.size(), 17u);
  const Table figures(seen["extra"]["figures"]);
  size_t measured = 0;
  for (size_t r = 0; r < figures.rows.size(); ++r) {
    for (const json& run : results["runs"]) {
      if (run["member"] != figures.at(r, "member") || run["seed"].dump() != figures.at(r, "seed")) continue;
      std::string path = "/" + figures.at(r, "figure");
      std::replace(path.begin(), path.end(), '.', '/');
      if (path.starts_with("/measures/")) path += "/value", ++measured;
      const json::json_pointer at(path);
      expect_cell(figures, r, "value", run.contains(at) ? run[at] : json());
    }
  }
  EXPECT_EQ(measured, 6u * 2);  // runs that did not fail, measures of each
}

}  // namespace
}  // namespace unchain::report
