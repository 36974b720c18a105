#include "analysis/maps_file.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "analysis/planted_maps.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

namespace fs = std::filesystem;

// A folder of this test alone, removed at the end.
class MapsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string("unchain_") + test->name() + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "maps.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_, path_;
};

// Owns what it points to.
Tensor make_tensor(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  auto owner = std::make_shared<std::vector<float>>(values);
  return {name, DType::f32, shape, std::as_bytes(std::span(*owner)), owner};
}

Tensor make_ids(const std::vector<int32_t>& values) {
  auto owner = std::make_shared<std::vector<int32_t>>(values);
  return {"tokens", DType::i32, {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(*owner)), owner};
}

std::vector<float> triangle(int64_t n, float weight = 0.1f) {
  std::vector<float> map(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) map[static_cast<size_t>(i * n + j)] = weight;
  }
  return map;
}

// Keeps every row that it is shown.
class Recorder : public attention::Observer {
 public:
  void on_maps(const attention::MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        auto& rows = positive[{panel.layer, h}];
        rows.emplace_back(panel.positive_row(h, r), panel.positive_row(h, r) + panel.first_row + r + 1);
        if (!panel.noise) continue;
        noise[{panel.layer, h}].emplace_back(panel.noise_row(h, r), panel.noise_row(h, r) + panel.first_row + r + 1);
        lambda[{panel.layer, h}].push_back(panel.lambda[h * panel.rows + r]);
      }
    }
    windows[panel.layer] = panel.window;
  }
  void end_layer(int layer) override { ended.push_back(layer); }
  std::map<std::pair<int, int>, std::vector<std::vector<float>>> positive, noise;
  std::map<std::pair<int, int>, std::vector<float>> lambda;
  std::map<int, int64_t> windows;
  std::vector<int> ended;
};

std::vector<std::vector<float>> rows_of(const ref::Matrix& map) {
  std::vector<std::vector<float>> rows;
  for (size_t i = 0; i < map.size(); ++i)
    rows.emplace_back(map[i].begin(), map[i].begin() + static_cast<std::ptrdiff_t>(i) + 1);
  return rows;
}

TEST_F(MapsFileTest, RoundTripIsExact) {
  constexpr int64_t kTokens = 150;  // more than two panels of replay
  const PlantedLayer layers[] = {plant(0, 3, kTokens, 1, true), plant(2, 3, kTokens, 2, false, 20)};
  std::vector<int32_t> ids(kTokens);
  std::vector<std::string> pieces(kTokens, "Ġa\"\n");
  for (size_t i = 0; i < kTokens; ++i) ids[i] = static_cast<int32_t>(i * 3);
  MapsWriter writer(path_, kTokens);
  for (const PlantedLayer& layer : layers) show(layer, writer, 33);
  EXPECT_FALSE(fs::exists(path_));
  const auto written = writer.finish(ids, pieces, "a model");
  EXPECT_EQ(written.layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(written.heads, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(written.bytes, fs::file_size(path_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);  // no spool is left

  const MapsFile file = MapsFile::open(path_);
  EXPECT_EQ(file.tokens(), kTokens);
  EXPECT_EQ(file.token_ids(), ids);
  EXPECT_EQ(file.pieces(), pieces);
  EXPECT_EQ(file.model(), "a model");
  Recorder recorder;
  file.replay(recorder);
  EXPECT_EQ(recorder.ended, (std::vector<int>{0, 2}));
  EXPECT_EQ(recorder.windows, (std::map<int, int64_t>{{0, 0}, {2, 20}}));
  for (const PlantedLayer& layer : layers) {
    for (int h = 0; h < 3; ++h) {
      const std::pair key(layer.layer, h);
      const auto head = static_cast<size_t>(h);
      EXPECT_EQ(recorder.positive[key], rows_of(layer.positive[head]));
      if (layer.noise.empty()) continue;
      EXPECT_EQ(recorder.noise[key], rows_of(layer.noise[head]));
      EXPECT_EQ(recorder.lambda[key], std::vector<float>(layer.lambda[head].begin(), layer.lambda[head].end()));
    }
  }
}

TEST_F(MapsFileTest, AnalysisEqualsThatOfTheTaps) {
  constexpr int64_t kTokens = 70;
  PlantedLayer layers[] = {plant(0, 2, kTokens, 1, true), plant(1, 2, kTokens, 2, false, 20)};
  MapAnalyzer analyzer({});
  MapsWriter writer(path_, kTokens);
  analyzer.begin_window(kTokens, {});
  for (PlantedLayer& layer : layers) {
    layer.norms.clear();
    layer.outputs.clear();
    show(layer, analyzer, 64);
    show(layer, writer, 64);
  }
  analyzer.end_window();
  writer.finish({}, {}, "");
  const AnalysisResults taps = analyzer.results(), maps = analyze_maps(MapsFile::open(path_), {});
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(taps.layers[l].cosine_distance->mean, maps.layers[l].cosine_distance->mean);
    for (size_t h = 0; h < 2; ++h) {
      for (size_t kind = 0; kind < kMapKinds; ++kind) {
        for (size_t m = 0; m < kMeasureCount; ++m) {
          const auto &a = taps.layers[l].heads[h].measures[kind][m], &b = maps.layers[l].heads[h].measures[kind][m];
          ASSERT_EQ(a.has_value(), b.has_value());
          if (a) {
            EXPECT_EQ(a->mean, b->mean) << info(static_cast<Measure>(m)).name;
          }
        }
      }
    }
  }
}

TEST_F(MapsFileTest, ChosenLayersAndHeadsKeepTheirNumbers) {
  const PlantedLayer layers[] = {plant(0, 4, 12, 1, true), plant(1, 4, 12, 2, true)};
  MapsWriter writer(path_, 12, {1}, {1, 3});
  for (const PlantedLayer& layer : layers) {
    if (writer.wants(layer.layer)) show(layer, writer, 5);
  }
  EXPECT_EQ(writer.finish({}, {}, "").heads, (std::vector<int>{1, 3}));
  const MapsFile file = MapsFile::open(path_);
  EXPECT_EQ(file.layers().at(1).heads, (std::vector<int>{1, 3}));
  const AnalysisResults results = analyze_maps(file, {});
  ASSERT_EQ(results.layers.size(), 1u);
  EXPECT_EQ(results.layers[0].layer, 1);
  EXPECT_EQ(results.layers[0].heads[1].head, 3);
  const auto highest = results.highest[static_cast<size_t>(Measure::sink_mass)];
  EXPECT_TRUE(highest->head == 1 || highest->head == 3);
}

TEST_F(MapsFileTest, WriterRefusesWhatTheModelHasNot) {
  {
    MapsWriter writer(path_, 12, {7});
    EXPECT_THROW(writer.finish({}, {}, ""), Error);
  }
  {
    MapsWriter writer(path_, 12, {}, {9});
    show(plant(0, 2, 12, 1, false), writer, 12);
    EXPECT_THROW(writer.finish({}, {}, ""), Error);
  }
  EXPECT_THROW(MapsWriter(folder_ / "absent" / "maps", 12), Error);
  EXPECT_TRUE(fs::is_empty(folder_));  // neither a file nor a spool
}

TEST_F(MapsFileTest, LambdaOfAHeadServesAllItsRows) {
  formats::write_safetensors(
      path_, {make_tensor("layer.0.head.0.positive", {3, 3}, triangle(3)),
              make_tensor("layer.0.head.0.noise", {3, 3}, triangle(3)), make_tensor("layer.0.lambda", {1}, {0.25f})});
  Recorder recorder;
  MapsFile::open(path_).replay(recorder);
  EXPECT_EQ((recorder.lambda[{0, 0}]), (std::vector<float>{0.25f, 0.25f, 0.25f}));
}

struct BadFile {
  std::string what;
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
  std::string expected;  // code and a part of the message
};

std::vector<BadFile> bad_files() {
  const std::string p00 = "layer.0.head.0.positive", p01 = "layer.0.head.1.positive", n00 = "layer.0.head.0.noise";
  const Tensor good = make_tensor(p00, {3, 3}, triangle(3));
  const Tensor noise = make_tensor(n00, {3, 3}, triangle(3));
  Tensor whole = make_ids({1});
  whole.name = p00;
  whole.shape = {1, 1};
  const auto with = [](std::vector<float> map, size_t place, float value) {
    map[place] = value;
    return map;
  };
  return {
      {"no maps", {make_ids({1, 2})}, {}, "format|no attention map"},
      {"unknown tensor", {good, make_tensor("layer.0.head.0.negative", {3, 3}, triangle(3))}, {}, "format|negative"},
      {"number with a zero in front",
       {make_tensor("layer.00.head.0.positive", {3, 3}, triangle(3))},
       {},
       "format|layer.00"},
      {"number too large",
       {make_tensor("layer.99999999999.head.0.positive", {3, 3}, triangle(3))},
       {},
       "format|layer.99999999999"},
      {"negative number", {make_tensor("layer.-1.head.0.positive", {3, 3}, triangle(3))}, {}, "format|layer.-1"},
      {"not square", {make_tensor(p00, {3, 2}, std::vector<float>(6))}, {}, "format|[3, 2]"},
      {"not a matrix", {make_tensor(p00, {1, 3, 3}, triangle(3))}, {}, "format|[1, 3, 3]"},
      {"empty", {make_tensor(p00, {0, 0}, {})}, {}, "format|[0, 0]"},
      {"two sizes", {good, make_tensor(p01, {4, 4}, triangle(4))}, {}, "format|[4, 4]"},
      {"noise alone", {noise, make_tensor("layer.0.lambda", {1}, {1})}, {}, "format|without its positive map"},
      {"noise in one head only",
       {good, noise, make_tensor(p01, {3, 3}, triangle(3)), make_tensor("layer.0.lambda", {2}, {1, 1})},
       {},
       "format|1 of 2 heads"},
      {"noise without lambda", {good, noise}, {}, "format|layer.0.lambda"},
      {"lambda without noise", {good, make_tensor("layer.0.lambda", {1}, {1})}, {}, "format|lambda without noise"},
      {"lambda without maps",
       {good, make_tensor("layer.5.lambda", {1}, {1})},
       {},
       "format|layer 5: lambda without maps"},
      {"lambda of wrong length",
       {good, noise, make_tensor("layer.0.lambda", {2}, {1, 1})},
       {},
       "format|layer.0.lambda: shape [2]"},
      {"lambda of wrong rows", {good, noise, make_tensor("layer.0.lambda", {1, 2}, {1, 1})}, {}, "format|[1, 2]"},
      {"lambda not finite",
       {good, noise, make_tensor("layer.0.lambda", {1}, {NAN})},
       {},
       "numeric|layer.0.lambda: head 0 row 0"},
      {"not causal", {make_tensor(p00, {3, 3}, with(triangle(3), 1, 0.5f))}, {}, "format|row 0 key 1: 0.5, expected 0"},
      {"not finite", {make_tensor(p00, {3, 3}, with(triangle(3), 7, NAN))}, {}, "numeric|row 2 key 1"},
      {"not finite above the diagonal",
       {make_tensor(p00, {3, 3}, with(triangle(3), 2, INFINITY))},
       {},
       "format|row 0 key 2"},
      {"outside the window", {good}, {{"windows", "{\"0\": 2}"}}, "format|row 2 key 0"},
      {"tokens too few", {good, make_ids({1, 2})}, {}, "format|tokens: i32 [2]"},
      {"tokens of another type", {good, make_tensor("tokens", {3}, {1, 2, 3})}, {}, "format|tokens: f32"},
      {"pieces too few", {good}, {{"pieces", "[\"a\"]"}}, "format|list of 3 strings"},
      {"pieces not strings", {good}, {{"pieces", "[1, 2, 3]"}}, "format|list of 3 strings"},
      {"pieces not JSON", {good}, {{"pieces", "[\"a\""}}, "format|pieces"},
      {"windows not an object", {good}, {{"windows", "[1]"}}, "format|windows"},
      {"window of no layer", {good}, {{"windows", "{\"3\": 2}"}}, "format|windows"},
      {"window negative", {good}, {{"windows", "{\"0\": -2}"}}, "format|windows"},
      {"whole numbers", {whole}, {}, "unsupported|i32"},
  };
}

TEST_F(MapsFileTest, BadFilesAreRefused) {
  for (const BadFile& bad : bad_files()) {
    formats::write_safetensors(path_, bad.tensors, bad.metadata);
    const std::string code = bad.expected.substr(0, bad.expected.find('|')),
                      part = bad.expected.substr(bad.expected.find('|') + 1);
    try {
      analyze_maps(MapsFile::open(path_), {});
      ADD_FAILURE() << bad.what << ": no error";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), code) << bad.what << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << bad.what << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(path_.string()), std::string::npos) << bad.what << ": " << error.what();
    }
  }
}

TEST_F(MapsFileTest, EveryCutAndBitFlipIsAnErrorOrAnAnalysis) {
  MapsWriter writer(path_, 4);
  show(plant(0, 2, 4, 1, true), writer, 4);
  writer.finish({1, 2, 3, 4}, {"a", "b", "c", "d"}, "m");
  std::string bytes(fs::file_size(path_), '\0');
  std::ifstream(path_, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto attempt = [&](const std::string& content) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
    try {
      analyze_maps(MapsFile::open(path_), {});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(attempt(bytes));
  for (size_t cut = 0; cut < bytes.size(); cut += 7) EXPECT_FALSE(attempt(bytes.substr(0, cut))) << cut;
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    std::string flipped = bytes;
    flipped[rng.below(bytes.size())] ^= static_cast<char>(1 << rng.below(8));
    attempt(flipped);
  }
}

}  // namespace
}  // namespace unchain::analysis
