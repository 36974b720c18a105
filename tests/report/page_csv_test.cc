// Every picture of an analysis, of needle results and of a comparison, at every choice: what is plotted is what its CSV
// holds, and that is what results.json holds, or of a single map the extras. (Of a study: study_csv_test.cc; of one row
// of needles: needle_row_test.cc.)
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "report/compare_fixture.h"
#include "report/needle_fixture.h"
#include "report/page_hands.h"
#include "report/shown_table.h"

namespace unchain::report {
namespace {

// What results.json holds of a measure; null where it has no value.
json stat(const json& measure, const char* of) {
  return measure.is_object() ? measure.value(of, json()) : json();
}

void expect_cell(const Table& table, size_t r, const std::string& column, const json& value) {
  const std::string& cell = table.at(r, column);
  if (value.is_number()) {
    EXPECT_TRUE(is_number(cell, value)) << column << " of row " << r << ": " << cell << ", results " << value;
  } else {
    EXPECT_EQ(cell, value.is_null() ? "" : value.get<std::string>()) << column << " of row " << r;
  }
}

size_t whole(const Table& table, size_t r, const std::string& column) {
  return std::stoul(table.at(r, column));
}

// The cell of a heat map whose axes show these labels.
const json& grid_cell(const json& shown, const std::string& x, const std::string& y) {
  const auto place = [](const json& labels, const std::string& text) {
    for (const json& label : labels)
      if (label[1] == text) return label[0].get<size_t>();
    ADD_FAILURE() << "no label " << text << " among " << labels;
    return size_t{0};
  };
  return shown["traces"][0]["z"][place(shown["y_labels"], y)][place(shown["x_labels"], x)];
}

// One measure of every head.
void expect_overview(const json& shown, const json& results) {
  const Table table(shown["csv"]);
  const std::string file = shown["name"], key = file.substr(0, file.find(".csv"));
  ASSERT_EQ(table.rows.size(), 6u);
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const size_t layer = whole(table, r, "layer"), head = whole(table, r, "head");
    const json& measure = results["layers"][layer]["heads"][head][key];
    EXPECT_EQ(grid_cell(shown, table.at(r, "layer"), table.at(r, "head")), measure["mean"]);
    for (const char* of : {"mean", "median"}) expect_cell(table, r, of, measure[of]);
    for (const char* end : {"low", "high"})
      if (const std::string column = std::string("interval ") + end; table.column(column) != std::string::npos)
        expect_cell(table, r, column, measure[end]);
  }
}

// Dots of heads and a line of their means for each column from the third on; a reference may be a line alone.
void expect_means(const json& shown, const json& results) {
  const Table table(shown["csv"]);
  size_t trace = 0;
  for (size_t c = 2; c < table.columns.size(); ++c) {
    const std::string& key = table.columns[c];
    std::vector<double> heads, sums(3);
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const size_t layer = whole(table, r, "layer");
      const json& value = results["layers"][layer]["heads"][whole(table, r, "head")][key]["mean"];
      expect_cell(table, r, key, value);
      heads.push_back(value);
      sums[layer] += value.get<double>() / 2;
    }
    const json& traces = shown["traces"];
    if (traces.at(trace)["y"].size() == heads.size()) EXPECT_EQ(traces[trace++]["y"], json(heads)) << key;
    for (size_t layer = 0; layer < 3; ++layer)
      EXPECT_NEAR(traces.at(trace)["y"][layer].get<double>(), sums[layer], 1e-12 * sums[layer]) << key;
    ++trace;
  }
  EXPECT_EQ(trace, shown["traces"].size());
}

void expect_layers(const json& shown, const json& results) {
  const Table table(shown["csv"]);
  ASSERT_EQ(table.rows.size(), 3u);
  ASSERT_EQ(shown["traces"].size(), 2u);
  for (const json& trace : shown["traces"]) {
    const std::string key = trace["name"] == "CKA of head outputs" ? "cka" : "cosine_distance";
    for (size_t layer = 0; layer < 3; ++layer) {
      const json& measure = results["layers"][layer][key];
      EXPECT_EQ(trace["y"][layer], measure["mean"]);
      const double mean = measure["mean"], low = measure["low"], high = measure["high"];
      EXPECT_NEAR(trace["error_y"]["arrayminus"][layer].get<double>(), mean - low, 1e-12);
      EXPECT_NEAR(trace["error_y"]["array"][layer].get<double>(), high - mean, 1e-12);
      expect_cell(table, layer, key, mean);
      expect_cell(table, layer, key + " interval low", low);
      expect_cell(table, layer, key + " interval high", high);
    }
  }
}

// The counts of the choice: a share a bin, of one layer as bars, of all as columns.
void expect_distribution(const json& shown, const json& extras) {
  const Table table(shown["csv"]);
  const bool weights = shown["name"].get<std::string>().find("log10_weight") != std::string::npos;
  const json& histogram = extras["histograms"][weights ? "log10_weight" : "entropy_normalised"];
  ASSERT_EQ(table.rows.size(), histogram["edges"].size() - 1);
  const json& trace = shown["traces"][0];
  const bool all = trace["type"] == "heatmap";
  std::vector<double> totals(3);
  for (size_t layer = 0; layer < 3; ++layer) {
    const std::string column = fmt::format("layer {}", layer);
    for (size_t b = 0; all && b < table.rows.size(); ++b) totals[layer] += *number(table.at(b, column));
  }
  double total = 0;
  for (size_t b = 0; b < table.rows.size(); ++b) {
    expect_cell(table, b, "from", histogram["edges"][b]);
    expect_cell(table, b, "to", histogram["edges"][b + 1]);
    if (!all) {
      EXPECT_TRUE(is_number(table.at(b, "share"), trace["y"][b]));
      total += *number(table.at(b, "count"));
      continue;
    }
    for (size_t layer = 0; layer < 3; ++layer) {
      const double count = *number(table.at(b, fmt::format("layer {}", layer)));
      EXPECT_NEAR(trace["z"][b][layer].get<double>(), count / totals[layer], 1e-12);
      const json& counts = histogram["counts"][layer];
      const double first = counts[0][b], second = counts[1][b];
      const std::string choice = shown["choice"];  // of a head, where not of all or of the other kind
      EXPECT_EQ(count, choice == "0" ? first : choice == "1" ? second : first + second);
    }
  }
  for (size_t b = 0; !all && b < table.rows.size(); ++b)
    EXPECT_NEAR(trace["y"][b].get<double>(), *number(table.at(b, "count")) / total, 1e-12);
}

// A map or the singular values of one model, held against its extras.
void expect_map(const json& shown, const json& extras) {
  const Table table(shown["csv"]);
  const json& z = shown["traces"][0]["z"];
  const std::string file = shown["name"];
  const size_t layer = file.at(file.find("layer-") + 6) - '0', head = file.at(file.find("head-") + 5) - '0';
  const std::string codes = extras["excerpt"]["maps"][layer][head];
  std::vector<unsigned char> written;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const size_t i = whole(table, r, "query"), j = whole(table, r, "key");
    const double weight = *number(table.at(r, "weight")), root = z[i][j];
    EXPECT_NEAR(root * std::abs(root), weight, 1e-12);
    written.push_back(static_cast<unsigned char>(std::lround(255 * std::sqrt(std::abs(weight)))));
  }
  EXPECT_EQ(plain_base64(written), codes) << "layer " << layer << " head " << head;
}

void expect_spectra(const json& shown, const json& extras) {
  const Table table(shown["csv"]);
  const std::string file = shown["name"];
  const json& heads = extras["spectra"][file.at(file.find("layer-") + 6) - '0'];
  ASSERT_EQ(table.columns.size(), 1 + heads.size());
  for (const json& trace : shown["traces"]) {
    const std::string column = trace["name"];
    const json& values = heads[std::stoul(column.substr(5))];
    ASSERT_EQ(trace["y"].size(), values.size());
    for (size_t k = 0; k < table.rows.size(); ++k) {
      expect_cell(table, k, column, k < values.size() ? values[k] : json());
      if (k < values.size()) EXPECT_EQ(trace["y"][k], values[k]);
    }
  }
}

void expect_all_figures(const json& seen, const json& results) {
  const Table table(seen["extra"]["figures"]);
  EXPECT_GT(table.rows.size(), 20u);
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const json& layer = results["layers"][whole(table, r, "layer")];
    const std::string head = table.at(r, "head");
    const json& measure = (head.empty() ? layer : layer["heads"][std::stoul(head)])[table.at(r, "measure")];
    for (const char* of : {"mean", "median"}) expect_cell(table, r, of, measure[of]);
  }
}

class SlowPageCsv : public SlowPageInBrowser {
 protected:
  // Looks at all pictures at all choices, each with what holds it against the results; all of them are there.
  using Check = std::function<void(const json& shown)>;
  json look(const Synthetic& data, const std::map<std::string, Check>& checks) {
    json seen = look_at(write(data, options_), 1200, kTakeAll);
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    std::map<std::string, int> pictures;
    for (const json& shown : seen["extra"]["shown"]) {
      const std::string id = shown["id"];
      SCOPED_TRACE(id + ", " + shown["choice"].get<std::string>());
      ++pictures[id];
      EXPECT_TRUE(shown["name"].get<std::string>().ends_with(".csv"));
      checks.at(id)(shown);
    }
    EXPECT_EQ(pictures.size(), checks.size());
    return seen;
  }
};

TEST_F(SlowPageCsv, OfAnAnalysis) {
  const Synthetic data = synthetic(3, 2, 6);
  const json& results = data.results;
  const json seen =
      look(data, {{"overview", [&](const json& shown) { expect_overview(shown, results); }},
                  {"mass", [&](const json& shown) { expect_means(shown, results); }},
                  {"rank", [&](const json& shown) { expect_means(shown, results); }},
                  {"layers", [&](const json& shown) { expect_layers(shown, results); }},
                  {"map", [&](const json& shown) { expect_map(shown, data.extras); }},
                  {"spectra", [&](const json& shown) { expect_spectra(shown, data.extras); }},
                  {"distributions", [&](const json& shown) { expect_distribution(shown, data.extras); }}});
  expect_all_figures(seen, results);
}

TEST_F(SlowPageCsv, OfNeedles) {
  const json results = needle_results(3);
  const auto cells = [&](const json& shown, const std::string& plotted, const auto& expected) {
    const Table table(shown["csv"]);
    ASSERT_EQ(table.rows.size(), results["cells"].size());
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const json& cell = results["cells"][r];
      expect_cell(table, r, "length", cell["length"]);
      expect_cell(table, r, "depth", cell["depth"]);
      const std::string depth = fmt::format("{:.0f}\u00a0%", 100 * cell["depth"].get<double>());
      const json& z = grid_cell(shown, table.at(r, "length"), depth);
      if (plotted == "first") {
        EXPECT_NEAR(z.get<double>(), *number(table.at(r, "first right")) / *number(table.at(r, "first asked")), 1e-12);
      } else {
        EXPECT_TRUE(is_number(table.at(r, plotted), z));
      }
      for (const auto& [column, value] : expected(cell)) expect_cell(table, r, column, value);
    }
  };
  using Columns = std::map<std::string, json>;
  const auto accuracy = [&](const json& shown) {
    cells(shown, shown["choice"] == "first" ? "first" : "accuracy", [](const json& cell) {
      return Columns{{"real depth", cell["real_depth"]},
                     {"prompt tokens", cell["prompt_tokens"]},
                     {"asked", cell["asked"]},
                     {"right", cell["right"]},
                     {"accuracy", cell["accuracy"]},
                     {"interval low", cell["low"]},
                     {"interval high", cell["high"]},
                     {"first asked", cell["first"]["asked"]},
                     {"first right", cell["first"]["right"]}};
    });
  };
  const auto attention = [&](const json& shown) {
    cells(shown, "mean", [](const json& cell) {
      const json& of = cell["attention_on_answer"];
      return Columns{
          {"mean", of["mean"]}, {"median", of["median"]}, {"interval low", of["low"]}, {"interval high", of["high"]}};
    });
  };
  const json seen = look({results, {}}, {{"accuracy", accuracy},
                                         {"attention", attention},
                                         {"heads", [&](const json& shown) { expect_overview(shown, results); }}});
  const Table answers(seen["extra"]["figures"]);
  ASSERT_EQ(answers.rows.size(), 12u);
  for (size_t r = 0; r < 12; ++r) {
    const json& sample = results["cells"][r / 2]["samples"][0];
    const json& answer = sample["answers"][r % 2];
    expect_cell(answers, r, "real depth", sample["real_depth"]);
    expect_cell(answers, r, "right", answer["right"].get<bool>() ? "yes" : "no");
    expect_cell(answers, r, "attention", answer["attention_on_answer"]);
    for (const auto& [column, key] : {std::pair{"city", "city"}, {"number", "number"}})
      expect_cell(answers, r, column, answer[key]);
  }
}

TEST_F(SlowPageCsv, OfAComparison) {
  const json results = compare_results(), extras = compare_extras();
  const json& models = results["models"];
  const auto model = [&](const std::string& name) {
    for (const json& each : models)
      if (each["name"] == name) return each;
    ADD_FAILURE() << "no model " << name;
    return json();
  };
  // Each as a share of the first model's mean.
  const auto differences = [&](const json& shown) {
    const Table table(shown["csv"]);
    const std::string name = table.columns.at(4);
    const json& dots = shown["traces"][0];
    size_t pairs = 0;
    for (const json& pair : results["paired"]) pairs += pair["model"] == name;
    ASSERT_EQ(table.rows.size(), pairs);
    for (size_t r = 0; r < table.rows.size(); ++r) {
      for (const json& pair : results["paired"]) {
        if (pair["model"] != name || pair["measure"] != table.at(r, "measure")) continue;
        for (const char* key : {"unit", "units", "difference", "low", "high"}) expect_cell(table, r, key, pair[key]);
      }
      const std::string measure = table.at(r, "measure");
      expect_cell(table, r, "first", stat(models[0]["measures"].value(measure, json()), "mean"));
      expect_cell(table, r, name, stat(model(name)["measures"].value(measure, json()), "mean"));
      const double base = std::abs(*number(table.at(r, "first"))), middle = *number(table.at(r, "difference"));
      EXPECT_NEAR(dots["x"][r].get<double>(), middle / base, 1e-12);
      EXPECT_NEAR(dots["error_x"]["array"][r].get<double>(), (*number(table.at(r, "high")) - middle) / base, 1e-12);
      EXPECT_NEAR(dots["error_x"]["arrayminus"][r].get<double>(), (middle - *number(table.at(r, "low"))) / base, 1e-12);
    }
  };
  const auto side_by_side = [&](const json& shown) {
    const Table table(shown["csv"]);
    const std::string file = shown["name"], measure = file.substr(13, file.find(".csv") - 13);
    const json& dots = shown["traces"][0];
    ASSERT_EQ(dots["y"].size(), table.rows.size());
    size_t known = 0;
    for (const json& each : models) known += each["measures"].value(measure, json()).is_object();
    ASSERT_EQ(table.rows.size(), known);
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const json of = model(table.at(r, "model"))["measures"][measure];
      for (const char* key : {"unit", "units", "mean", "low", "high"}) expect_cell(table, r, key, of[key]);
      const double mean = of["mean"];
      EXPECT_EQ(dots["y"][r], mean);
      EXPECT_NEAR(dots["error_y"]["array"][r].get<double>(), of["high"].get<double>() - mean, 1e-12);
      EXPECT_NEAR(dots["error_y"]["arrayminus"][r].get<double>(), mean - of["low"].get<double>(), 1e-12);
    }
  };
  const auto growth = [&](const json& shown) {
    const Table table(shown["csv"]);
    const std::string choice = shown["choice"];
    ASSERT_EQ(table.rows.size(), 4u);
    for (size_t r = 0; r < 4; ++r) {
      const json& entry = models[r / 2]["growth"][r % 2];
      expect_cell(table, r, "model", models[r / 2]["name"]);
      expect_cell(table, r, "loss_nats", entry["loss_nats"]["mean"]);
      for (const char* end : {"low", "high"}) expect_cell(table, r, end, entry["loss_nats"][end]);
      for (const char* key : {"tokens", "cache_numbers", "state_numbers", "multiply_adds"})
        expect_cell(table, r, key, entry[key]);
      const json& line = shown["traces"][r / 2];
      EXPECT_EQ(line["x"][r % 2], entry["tokens"]);
      const double numbers = *number(table.at(r, "cache_numbers")) + *number(table.at(r, "state_numbers"));
      EXPECT_EQ(line["y"][r % 2].get<double>(), choice == "numbers"         ? numbers
                                                : choice == "multiply_adds" ? *number(table.at(r, "multiply_adds"))
                                                                            : *number(table.at(r, "loss_nats")));
    }
  };
  const auto of_model = [&](const json& shown) -> const json& {
    const bool first = shown["name"].get<std::string>().ends_with("-first.csv");
    return extras["models"][first ? 0 : 1];
  };
  const json seen =
      look({results, extras}, {{"differences", differences},
                               {"side-by-side", side_by_side},
                               {"growth", growth},
                               {"map", [&](const json& shown) { expect_map(shown, of_model(shown)); }},
                               {"spectra", [&](const json& shown) { expect_spectra(shown, of_model(shown)); }}});
  const Table figures(seen["extra"]["figures"]);
  ASSERT_EQ(figures.rows.size(), 7u);
  for (size_t r = 0; r < figures.rows.size(); ++r) {
    const json of = model(figures.at(r, "model"))["measures"][figures.at(r, "measure")];
    for (const char* key : {"unit", "units", "mean", "median", "low", "high"}) expect_cell(figures, r, key, of[key]);
  }
}

}  // namespace
}  // namespace unchain::report
