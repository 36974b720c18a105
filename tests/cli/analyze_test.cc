// analyze and capture: files, keys, and the same figures from maps as from the model.
#include "cli/program_folder.h"
#include "formats/safetensors.h"
#include "support/measure_names.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class CliAnalyze : public Cli {
 protected:
  json analyze(const std::string& model, const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"analyze", path(model), "-o", own(out), "--dtype", "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_json(arguments);
  }
};

TEST_F(CliAnalyze, ResultsHaveEveryKey) {
  for (const char* model : {"llama", "gemma3"}) {
    const json printed = analyze(model, model, {path("text.txt"), "--window", "24", "--windows", "3"});
    const json results = json::parse(read_file(own_ / (std::string(model) + "/results.json")));
    EXPECT_EQ(printed, results);
    expect_keys(results, {"schema", "command", "version", "settings", "model", "layers", "summary"});
    EXPECT_EQ(results["command"], "analyze");
    EXPECT_EQ(results["settings"]["window"], 24);
    EXPECT_EQ(results["settings"]["windows"], 3);
    EXPECT_EQ(results["settings"]["dtype"], "f32");
    ASSERT_EQ(results["layers"].size(), 3u);
    for (const json& layer : results["layers"]) {
      expect_keys(layer, {"heads", "lambda", "cosine_distance", "cka"});
      ASSERT_EQ(layer["heads"].size(), 4u);
      for (const json& head : layer["heads"]) {
        for (const std::string& name : measure_names()) {
          ASSERT_TRUE(head.contains(name)) << name;
          if (head[name].is_null()) continue;
          expect_keys(head[name], {"mean", "median", "low", "high"});
          if (head[name]["low"].is_null()) {
            EXPECT_TRUE(head[name]["high"].is_null()) << name;
          } else {
            EXPECT_LE(head[name]["low"], head[name]["high"]) << name;
          }
        }
        EXPECT_NEAR(head["row_sum"]["mean"].get<double>(), 1, 1e-5);
        EXPECT_TRUE(head["negative_mass"].is_null() || head["negative_mass"]["mean"] == 0);
        EXPECT_FALSE(head["rank_entropy"].is_null());
        EXPECT_FALSE(head["sink_mass_value_weighted"].is_null());
      }
    }
    const std::string page = read_file(own_ / (std::string(model) + "/report.html"));
    EXPECT_NE(page.find("</html>"), std::string::npos);
    EXPECT_LT(page.size(), 5'000'000u);
  }
}

TEST_F(CliAnalyze, MetricsChooseWhatIsMeasured) {
  const json results =
      analyze("llama", "a", {path("text.txt"), "--window", "16", "--windows", "1", "--metrics", "sink_mass,block"});
  const json& head = results["layers"][0]["heads"][0];
  EXPECT_TRUE(head.contains("sink_mass"));
  EXPECT_TRUE(head.contains("block_rank_entropy"));
  EXPECT_FALSE(head.contains("entropy"));
  EXPECT_FALSE(head.contains("rank_entropy"));
}

TEST_F(CliAnalyze, MapsGiveTheSameFigures) {
  for (const char* model : {"llama", "gemma3"}) {
    const std::string text = "The river meets the sea, and the sea meets the river again.";
    const json direct = analyze(model, "direct", {"--text", text});
    const json captured =
        run_json({"capture", path(model), "--text", text, "--dtype", "f32", "-o", own("maps.safetensors")});
    EXPECT_EQ(captured["tokens"], direct["settings"]["window"]);
    const json maps = run_json({"analyze", "--maps", own("maps.safetensors"), "-o", own("maps")});
    EXPECT_EQ(maps, json::parse(read_file(own_ / "maps/results.json")));
    EXPECT_TRUE(std::filesystem::exists(own_ / "maps/report.html"));
    size_t compared = 0;
    for (size_t l = 0; l < 3; ++l) {
      EXPECT_TRUE(maps["layers"][l]["cka"].is_null());  // of outputs, which maps do not hold
      EXPECT_NEAR(maps["layers"][l]["cosine_distance"]["mean"].get<double>(),
                  direct["layers"][l]["cosine_distance"]["mean"].get<double>(), 1e-6);
      for (size_t h = 0; h < 4; ++h) {
        for (const std::string& name : measure_names()) {
          const json& a = direct["layers"][l]["heads"][h][name];
          const json& b = maps["layers"][l]["heads"][h][name];
          // What needs values cannot come from maps.
          if (name == "sink_mass_value_weighted") {
            EXPECT_TRUE(b.is_null()) << name;
            continue;
          }
          ASSERT_EQ(a.is_null(), b.is_null()) << name;
          if (a.is_null()) continue;
          EXPECT_TRUE(b["low"].is_null() && b["high"].is_null()) << name << ": one text has no interval";
          EXPECT_NEAR(a["mean"].get<double>(), b["mean"].get<double>(), 1e-6 * (1 + std::abs(a["mean"].get<double>())))
              << model << " " << l << " " << h << " " << name;
          ++compared;
        }
      }
    }
    EXPECT_GT(compared, 200u);
  }
}

TEST_F(CliAnalyze, CapturedRowsSumToOne) {
  run_json({"capture", path("llama"), "--ids", "5,6,7,8,9,10", "--layers", "1", "-o", own("m")});
  const auto file = formats::SafetensorsFile::open(own("m"));
  size_t maps = 0;
  for (const Tensor& tensor : file.tensors()) {
    if (tensor.name == "tokens") continue;
    ASSERT_EQ(tensor.shape, (Shape{6, 6})) << tensor.name;
    const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
    for (size_t i = 0; i < 6; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 6; ++j) sum += static_cast<double>(values[i * 6 + j]);
      EXPECT_NEAR(sum, 1, 1e-5);
    }
    ++maps;
  }
  EXPECT_EQ(maps, 4u);
  EXPECT_TRUE(names(own_.path(), "m.").empty()) << "a spool file is left";
}

TEST_F(CliAnalyze, TheSameSeedGivesTheSameFile) {
  const std::vector<std::string> more = {path("text.txt"), "--window", "16", "--windows", "2", "--seed", "5"};
  const json a = analyze("llama", "a", more), b = analyze("llama", "b", more);
  EXPECT_EQ(a["layers"], b["layers"]);
}

}  // namespace
}  // namespace unchain::test
