#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "report/page_fixture.h"

namespace unchain::report {
namespace {

using nlohmann::json;

// A study of two members and two seeds with three claims, one of two parts and one without runs.
json study_results() {
  const auto part = [](const char* direction, const json& threshold, const json& mean, const char* verdict) {
    return json{{"measure", "loss_nats"},
                {"comparison", "difference"},
                {"of", "diff_v2"},
                {"against", "softmax"},
                {"reference", nullptr},
                {"track", "language"},
                {"size", "s"},
                {"direction", direction},
                {"threshold", threshold},
                {"mean", mean},
                {"low", mean.is_null() ? json() : json(mean.get<double>() - 0.5)},
                {"high", mean.is_null() ? json() : json(mean.get<double>() + 0.25)},
                {"floor", mean.is_null() ? json() : json(0.125)},
                {"detectable", 0.3},
                {"effect", nullptr},
                {"seeds", 2},
                {"verdict", verdict ? json(verdict) : json()},
                {"note", ""}};
  };
  json results = {{"schema", 1},
                  {"command", "study"},
                  {"version", "0"},
                  {"settings", {{"description", "studies/mine.json"}}},
                  {"claims", json::array()},
                  {"runs", json::array()}};
  const auto claim = [&](int id, const json& verdict, const json& parts) {
    results["claims"].push_back({{"id", id},
                                 {"source", "seed"},
                                 {"statement", "A <b>bold</b> claim."},
                                 {"verdict", verdict},
                                 {"note", "Not \"all\"."},
                                 {"parts", parts}});
  };
  claim(1, "supported", {part("below", 0, -1, "supported"), part("inside", {2, 5}, 3, "undecided")});
  claim(2, "refuted", json::array({part("above", 0, -1, "refuted")}));
  claim(3, nullptr, json::array({part("above", 0, nullptr, nullptr)}));
  for (int seed = 0; seed < 2; ++seed) {
    for (const char* member : {"softmax", "diff_v2"}) {
      const double loss = 3 + seed + (member[0] == 's' ? 0.5 : 0);
      results["runs"].push_back(
          {{"track", "language"},
           {"size", "s"},
           {"member", member},
           {"seed", seed},
           {"pilot", false},
           {"parameters", 100},
           {"perplexity", 20 + loss},
           {"needle", {{{"asked", 8}, {"right", 4}, {"accuracy", 0.5}, {"low", 0.2}, {"high", 0.8}, {"chance", 0.25}}}},
           {"measures", {{"loss_nats", {{"value", loss}}}, {"negative_mass", {{"value", 0.1 * seed}}}}},
           {"curve", {{{"tokens", 100}, {"text_loss_nats", 5}}, {{"tokens", 200}, {"text_loss_nats", loss + 0.1}}}}});
    }
  }
  results["runs"].push_back(
      {{"track", "language"}, {"size", "s"}, {"member", "sink"}, {"seed", 0}, {"pilot", false}, {"failed", "NaN"}});
  return results;
}

TEST_F(SlowPageInBrowser, DrawsAStudy) {
  const json results = study_results();
  const std::string other = std::string(kOpenAll) + R"(
    const choose = doc.getElementById("measures-measure");
    choose.value = "negative_mass";
    choose.dispatchEvent(new win.Event("change"));
    await pause(300);)";
  for (const int width : {360, 1200}) {
    const json seen = look_at(write({results, {}}, options_), width, width == 360 ? kOpenAll : other);
    expect_sound(seen, 4, 10);
    const std::string text = seen["text"];
    EXPECT_NE(text.find("Study: mine.json"), std::string::npos);
    EXPECT_NE(text.find("Of 3 claims: 1 supported, 1 refuted, 1 not measured."), std::string::npos);
    EXPECT_NE(text.find("4 trained models · 2 members · 2 seeds · 1 failed"), std::string::npos);
    // Estimates on their claimed side are right of the middle: 1 below 0, 3 inside [2, 5] by 1, −1 where above 0 is
    // claimed, none.
    const json& dots = seen["pictures"]["claims"]["traces"].back();
    ASSERT_EQ(dots["x"].size(), 4u);
    EXPECT_NEAR(dots["x"][0].get<double>(), 1 / 1.5, 1e-12);
    EXPECT_NEAR(dots["x"][1].get<double>(), 1 / 1.25, 1e-12);
    EXPECT_NEAR(dots["x"][2].get<double>(), -1 / 1.5, 1e-12);
    EXPECT_TRUE(dots["x"][3].is_null());
    EXPECT_EQ(seen["tables"]["claims"].size(), 5u);
    EXPECT_EQ(seen["tables"]["claims"][1][2], "A <b>bold</b> claim.");
    EXPECT_EQ(seen["tables"]["claims"][4][3], "not measured");
    // Any measure: a dot a run, the mean of the seeds.
    const json& measure = seen["pictures"]["measures"]["traces"];
    const bool loss = width == 360;
    EXPECT_EQ(measure[0]["y"], loss ? json({3.5, 3.0, 4.5, 4.0}) : json({0.0, 0.0, 0.1, 0.1}));
    EXPECT_EQ(measure[1]["y"], loss ? json({4.0, 3.5}) : json({0.05, 0.05}));
    EXPECT_EQ(seen["tables"]["measures"].size(), 5u);
    EXPECT_EQ(seen["pictures"]["needles"]["traces"][2]["y"], json({0.25, 0.25}));
    const json& curves = seen["pictures"]["curves"]["traces"];
    ASSERT_EQ(curves.size(), 2u);
    EXPECT_EQ(curves[0]["name"], "softmax");
    EXPECT_EQ(curves[0]["y"], json({5.0, 4.1}));
    EXPECT_EQ(seen["tables"]["curves"].size(), 5u);
  }
  for (const json& bad :
       {json{{"command", "study"}}, json{{"command", "study"}, {"claims", {1}}, {"runs", {nullptr}}}}) {
    const json empty = look_at(write({bad, {}}, options_), 360);
    ASSERT_TRUE(empty.contains("data")) << empty;
    EXPECT_EQ(empty["data"].value("errors", "?"), "") << bad;
    EXPECT_EQ(empty["missing"].size(), 4u) << bad;
  }
}

}  // namespace
}  // namespace unchain::report
