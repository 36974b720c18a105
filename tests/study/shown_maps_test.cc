#include "study/shown_maps.h"

#include <fstream>

#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

constexpr const char* kText =
    "The river meets the sea, and stays. The river meets the sea again, and again it stays there.";

Claims shipped() {
  return parse_claims(std::string(claims_text()), "study/claims.json");
}

void write_model(const std::filesystem::path& folder, const std::string& attention) {
  test::TinyModel model;
  if (attention == "lowrank_diff") model = {"gemma3", "gemma_like", false, {}, attention};
  test::write_tiny_model(folder, model);
}

// Every layer and head has its map, in base64 as long as the codes of `size` rows.
void expect_maps(const nlohmann::json& model, const std::string& name, size_t size) {
  EXPECT_EQ(model["name"], name);
  ASSERT_EQ(model["excerpt"]["size"], size);
  EXPECT_EQ(model["tokens"].size(), size);
  EXPECT_FALSE(model.contains("histograms"));
  ASSERT_FALSE(model["layers"].empty());
  int spectra = 0;
  for (size_t layer = 0; layer < model["layers"].size(); ++layer) {
    for (size_t head = 0; head < model["layers"][layer]["heads"].size(); ++head) {
      EXPECT_EQ(model["excerpt"]["maps"][layer][head].get<std::string>().size(), (size * (size + 1) / 2 + 2) / 3 * 4);
      const nlohmann::json& values = model["spectra"][layer][head];
      EXPECT_TRUE(values.is_null() || values[0] == 1.0) << "a layer whose window leaves no block has none";
      spectra += values.is_null() ? 0 : 1;
    }
  }
  EXPECT_GT(spectra, 0);
}

TEST(ShownMaps, TheFirstGivenModelOfEachRole) {
  const test::TemporaryFolder folder;
  for (const char* name : {"softmax", "lowrank_diff"}) write_model(folder / name, name);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  GivenOptions options;
  options.text = kText;
  options.window = 20;
  const Claims claims = shipped();
  const auto given =
      parse_given({"wide=absent", "variant=" + path("lowrank_diff") + ",absent", "softmax=" + path("softmax")}, claims);
  const auto models = maps_of_given(given, options, claims);
  ASSERT_EQ(models.size(), 2u);
  expect_maps(models[0], "softmax", 20);
  expect_maps(models[1], "lowrank_diff", 20);
  EXPECT_TRUE(models[0]["excerpt"].value("signs", nlohmann::json()).is_null() ||
              models[0]["excerpt"]["signs"][0][0].is_null());
  EXPECT_TRUE(models[1]["excerpt"]["signs"][0][0].is_string()) << "a difference has negative weights";
}

TEST(ShownMaps, TheFirstRunOfEachRoleWhoseModelIsThere) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "valid.txt") << kText;
  std::vector<PlannedRun> runs;
  const auto add = [&](const char* member, int64_t seed, bool pilot, bool done) {
    PlannedRun& run = runs.emplace_back();
    run.track = "language";
    run.size = "s";
    run.member = member;
    run.seed = seed;
    run.pilot = pilot;
    run.config.data.valid = {(folder / "valid.txt").string()};
    run.config.train.context = 16;
    if (!done) return;
    const auto own = folder / "runs" / run.name();
    write_model(own / "model", member);
    std::ofstream(own / "result.json") << "{}";
  };
  add("softmax", 9, true, true);
  add("wide", 0, false, true);
  add("lowrank_diff", 0, false, false);
  add("softmax", 0, false, true);
  add("lowrank_diff", 1, false, true);
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  const auto models = maps_of_runs(runs, folder.path(), shipped(), note);
  ASSERT_EQ(models.size(), 2u);
  expect_maps(models[0], "softmax, language, s", 16);
  expect_maps(models[1], "lowrank_diff, language, s", 16);
  EXPECT_TRUE(maps_of_runs({}, folder.path(), shipped(), note).empty());
  EXPECT_TRUE(notes.empty());
  // A damaged model costs no more than its own maps.
  std::ofstream(folder / "runs/language-s-softmax-0/model/config.json") << "{";
  EXPECT_EQ(maps_of_runs(runs, folder.path(), shipped(), note).size(), 1u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("language-s-softmax-0: the page does not show its maps"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace unchain::study
