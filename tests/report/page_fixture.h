// What tests of pages share: a folder that goes when the test ends, and what any page must be in a browser.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "report/browser.h"
#include "report/page.h"
#include "support/synthetic_report.h"

namespace unchain::report {

class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        fmt::format("unchain_page_{}_{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const Synthetic& data, const PageOptions& options = {}) {
    write_page(folder_ / "report.html", data.results, data.extras, options);
    return folder_ / "report.html";
  }
  std::filesystem::path folder_;
};

// What follows opens the page. Without a browser or Plotly it is skipped, in CI it fails.
class SlowPageInBrowser : public PageTest {
 protected:
  void SetUp() override {
    PageTest::SetUp();
    options_.plotly = find_test_plotly();
    const std::string missing = find_chromium().empty()   ? "no chromium is installed"
                                : options_.plotly.empty() ? "no plotly.min.js (tools/setup fetches it)"
                                                          : "";
    if (missing.empty()) return;
    const char* ci = std::getenv("CI");
    if (ci != nullptr && std::string(ci) == "true") FAIL() << missing;
    GTEST_SKIP() << missing;
  }
  // What any page must be, whatever it shows.
  static void expect_sound(const nlohmann::json& seen, size_t pictures, size_t controls = 20) {
    ASSERT_TRUE(seen.contains("data")) << seen.dump();
    EXPECT_EQ(seen["data"].value("ready", ""), "yes");
    EXPECT_EQ(seen["data"].value("errors", "?"), "");
    EXPECT_EQ(seen["data"].value("overflow", "?"), "no");
    EXPECT_LE(seen["scroll_width"].get<int>(), seen["inner_width"].get<int>());
    EXPECT_EQ(seen["pictures"].size(), pictures);
    for (const auto& [id, picture] : seen["pictures"].items()) {
      EXPECT_GE(picture["drawn"].get<size_t>(), picture["traces"].size()) << id;
      EXPECT_GT(picture["label"].get<std::string>().size(), 20u) << id;
      EXPECT_GT(picture["sentence"].get<std::string>().size(), 20u) << id;
      for (const char* wrong : {"NaN", "undefined", "null", "Infinity", "[object"}) {
        EXPECT_EQ(picture["sentence"].get<std::string>().find(wrong), std::string::npos)
            << id << ": " << picture["sentence"];
      }
    }
    EXPECT_GT(seen["controls"].size(), controls);
    for (const nlohmann::json& control : seen["controls"]) {
      EXPECT_TRUE(control["reachable"].get<bool>()) << control;
      EXPECT_NE(control["name"], "") << control;
    }
    EXPECT_EQ(seen["lang"], "en");
    EXPECT_EQ(seen["requests"], nlohmann::json::array());
    EXPECT_EQ(seen["foreign"], 0);
    int level = 0;
    for (const nlohmann::json& heading : seen["headings"]) {
      EXPECT_LE(heading.get<int>(), level + 1);
      level = heading;
    }
  }
  PageOptions options_;
};

inline constexpr const char* kOpenAll =
    "for (const d of doc.querySelectorAll('details')) d.open = true; await quiet();";

}  // namespace unchain::report
