// The rows of a CSV that a page gives, and which of them a plotted point is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "report/study_fixture.h"

namespace unchain::report {

// A number, also one in per cent; none if the text is none.
inline std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  const std::string rest = end;
  if (rest.empty()) return value;
  return rest.ends_with("%") ? std::optional(value / 100) : std::nullopt;
}

inline bool close_to(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b));
}

inline bool is_number(const std::string& cell, double value) {
  const auto found = number(cell);
  return found && close_to(*found, value);
}

struct Table {
  explicit Table(const std::string& csv) : rows(read_csv(csv)) {
    columns = rows.at(0);
    rows.erase(rows.begin());
    for (const auto& row : rows) EXPECT_EQ(row.size(), columns.size()) << csv.substr(0, 400);
  }
  size_t column(const std::string& name) const {
    const auto found = std::find(columns.begin(), columns.end(), name);
    return found == columns.end() ? std::string::npos : static_cast<size_t>(found - columns.begin());
  }
  const std::string& at(size_t row, const std::string& name) const { return rows[row].at(column(name)); }
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

// The column that a trace shows.
inline size_t value_column(const Table& table, const json& trace) {
  for (const std::string& name : {std::string("mean"), std::string("share right"), std::string("accuracy"),
                                  std::string("weight"), trace.value("name", std::string())})
    if (table.column(name) != std::string::npos) return table.column(name);
  return table.columns.size() - 1;
}

// Whether a cell names the place `at` of an axis: by its label, or by its number or the one that it stands beside.
inline bool names_place(const std::string& cell, double at, const json& labels) {
  if (labels.empty())
    return is_number(cell, at) || (std::abs(at - std::round(at)) <= 0.15 && is_number(cell, std::round(at)));
  return std::any_of(labels.begin(), labels.end(), [&](const json& label) {
    const std::string text = label[1];
    const auto value = number(text);
    return std::abs(label[0].get<double>() - at) <= 0.15 && (cell == text || (value && is_number(cell, *value)));
  });
}

inline bool has_place(const std::vector<std::string>& row, double at, const json& labels) {
  return std::any_of(row.begin(), row.end(), [&](const std::string& cell) { return names_place(cell, at, labels); });
}

// Whether a row is of the series of this name: each of its parts that some row has as a cell is a cell of this one.
inline bool of_series(const Table& table, const std::vector<std::string>& row, const std::string& name) {
  for (size_t from = 0; from < name.size();) {
    const size_t comma = std::min(name.find(", ", from), name.size());
    const std::string part = name.substr(from, comma - from);
    from = comma + 2;
    const auto has = [&](const auto& cells) { return std::find(cells.begin(), cells.end(), part) != cells.end(); };
    if (std::any_of(table.rows.begin(), table.rows.end(), has) && !has(row)) return false;
    if (part.starts_with("layer ") && row[table.column("layer")] != part.substr(6)) return false;
    if (part == "the model" && !row[table.column("layer")].empty()) return false;
  }
  return true;
}

}  // namespace unchain::report
