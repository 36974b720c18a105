#include "analysis/analyzer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "analysis/planted_maps.h"
#include "base/thread.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

const std::array<std::string, 5> kRankNames = {"rank_entropy", "rank_entropy_squared", "rank_stable", "rank_r90",
                                               "rank_r99"};

ref::Matrix block_of(const ref::Matrix& p) {
  const size_t n = p.size(), columns = 3 * n / 4, count = std::min<size_t>(n - columns, 256);
  ref::Matrix block;
  for (size_t r = 0; r < count; ++r) {
    const auto& row = p[columns + r * (n - columns) / count];
    block.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(columns));
  }
  return block;
}

// Every measure of one map but the permuted reference, in double.
std::map<std::string, std::optional<double>> expected_measures(const ref::Matrix& p, int64_t window,
                                                               const std::vector<double>& norms,
                                                               const std::vector<int>& tokens) {
  auto out = ref::row_measures(p, static_cast<size_t>(window), norms, tokens);
  const auto whole = ref::map_ranks(p);
  const bool has_block = p.size() > 1 && (window == 0 || window >= static_cast<int64_t>(p.size()));
  const auto block = has_block ? ref::map_ranks(block_of(p)) : std::vector<double>(5);
  for (size_t k = 0; k < 5; ++k) {
    out[kRankNames[k]] = whole[k];
    out["block_" + kRankNames[k]] = has_block ? std::optional(block[k]) : std::nullopt;
  }
  return out;
}

struct Pass {
  std::vector<PlantedLayer> layers;
  std::vector<int> tokens;
};

Pass make_pass(int64_t tokens, uint64_t seed, bool noise = true) {
  Pass pass;
  pass.layers = {plant(0, 3, tokens, seed, noise), plant(1, 3, tokens, seed, false, tokens / 2),
                 plant(4, 2, tokens, seed, noise)};
  Rng rng(seed, 99);
  for (int64_t i = 0; i < tokens; ++i) pass.tokens.push_back(static_cast<int>(rng.below(7)));
  return pass;
}

AnalysisResults analyse(const std::vector<Pass>& passes, int64_t rows, AnalysisOptions options = {}) {
  MapAnalyzer analyzer(std::move(options));
  for (const Pass& pass : passes) {
    analyzer.begin_window(static_cast<int64_t>(pass.tokens.size()),
                          std::vector<int32_t>(pass.tokens.begin(), pass.tokens.end()));
    for (const PlantedLayer& layer : pass.layers) show(layer, analyzer, rows);
    analyzer.end_window();
  }
  return analyzer.results();
}

TEST(MapAnalyzer, AgreesWithReferenceOverWindows) {
  const std::vector<Pass> passes = {make_pass(41, 1), make_pass(41, 2), make_pass(30, 3)};
  const AnalysisResults results = analyse(passes, 16);
  ASSERT_EQ(results.layers.size(), 3u);
  for (size_t l = 0; l < 3; ++l) {
    const LayerResults& layer = results.layers[l];
    EXPECT_EQ(layer.layer, passes[0].layers[l].layer);
    EXPECT_EQ(layer.noise, l != 1);
    for (size_t h = 0; h < layer.heads.size(); ++h) {
      for (size_t kind = 0; kind < (layer.noise ? 3u : 1u); ++kind) {
        std::map<std::string, std::pair<double, int>> sums;
        for (const Pass& pass : passes) {
          const PlantedLayer& planted = pass.layers[l];
          const ref::Matrix p = kind == 0 ? planted.map(h) : kind == 1 ? planted.positive[h] : planted.noise[h];
          for (const auto& [name, value] : expected_measures(p, planted.window, planted.norms[h], pass.tokens)) {
            if (value) sums[name].first += *value, ++sums[name].second;
          }
        }
        for (size_t m = 0; m < kMeasureCount; ++m) {
          const MeasureInfo& measure = info(static_cast<Measure>(m));
          const auto& got = layer.heads[h].measures[kind][m];
          const std::string where =
              std::string(measure.name) + " of layer " + std::to_string(layer.layer) + " kind " + std::to_string(kind);
          if (measure.group == MeasureGroup::references) {
            EXPECT_EQ(got.has_value(), kind == 0 || measure.of_parts) << where;
            continue;
          }
          const auto& [sum, count] = sums[std::string(measure.name)];
          ASSERT_EQ(got.has_value(), count > 0 && (kind == 0 || measure.of_parts)) << where;
          if (!got) continue;
          EXPECT_NEAR(got->mean, sum / count, 2e-5 * (1 + std::abs(sum / count))) << where;
          EXPECT_EQ(got->windows, count) << where;
        }
      }
    }
  }
}

TEST(MapAnalyzer, LayerWideMeasures) {
  const Pass pass = make_pass(33, 4);
  const AnalysisResults results = analyse({pass}, 10);
  for (size_t l = 0; l < 3; ++l) {
    const PlantedLayer& layer = pass.layers[l];
    const size_t heads = layer.positive.size();
    std::vector<ref::Matrix> maps;
    double lambda = 0, cka = 0, pairs = 0;
    const auto outputs = [&](size_t h) {
      ref::Matrix x = ref::zeros(33, 3);
      for (size_t i = 0; i < 33; ++i) {
        for (size_t j = 0; j < 3; ++j) x[i][j] = layer.outputs[(i * heads + h) * 3 + j];
      }
      return x;
    };
    for (size_t h = 0; h < heads; ++h) {
      maps.push_back(layer.map(h));
      for (const double x : layer.lambda[h]) lambda += x / 33 / static_cast<double>(heads);
      for (size_t g = 0; g < h; ++g) cka += ref::cka(outputs(g), outputs(h)), ++pairs;
    }
    EXPECT_NEAR(results.layers[l].cosine_distance->mean, ref::mean_cosine_distance(maps), 1e-6);
    EXPECT_NEAR(results.layers[l].cka->mean, cka / pairs, 1e-9);
    ASSERT_EQ(results.layers[l].lambda.has_value(), l != 1);
    if (l != 1) {
      EXPECT_NEAR(results.layers[l].lambda->mean, lambda, 1e-6);
    }
  }
}

TEST(MapAnalyzer, PanelsAndThreadsChangeNothing) {
  const std::vector<Pass> passes = {make_pass(29, 5)};
  const AnalysisResults whole = analyse(passes, 64);
  for (const int threads_used : {1, 2}) {
    set_threads(threads_used);
    for (const int64_t rows : {1, 7, 29}) {
      const AnalysisResults panels = analyse(passes, rows);
      for (size_t l = 0; l < 3; ++l) {
        for (size_t h = 0; h < whole.layers[l].heads.size(); ++h) {
          const HeadResults &a = whole.layers[l].heads[h], &b = panels.layers[l].heads[h];
          for (size_t m = 0; m < kMeasureCount; ++m) {
            ASSERT_EQ(a.measures[0][m].has_value(), b.measures[0][m].has_value());
            if (a.measures[0][m]) {
              EXPECT_EQ(a.measures[0][m]->mean, b.measures[0][m]->mean);
            }
          }
          EXPECT_EQ(a.excerpt, b.excerpt);
          EXPECT_EQ(a.spectrum, b.spectrum);
          EXPECT_EQ(a.histograms.log10_weight, b.histograms.log10_weight);
        }
      }
    }
  }
  set_threads(0);
}

// lowrank_diff's noise is Σ_m α_tm/Z_tm · e^(s_mj) of R prototypes where rows see keys: a block of rank R.
TEST(MapAnalyzer, PrototypesMakeABlockOfTheirNumber) {
  constexpr int64_t kTokens = 64;
  for (const int64_t rank : {1, 2, 4}) {
    SCOPED_TRACE(rank);
    model::Config config = test::family_config("lowrank_diff");
    config.attention.rank = rank;
    const test::LoadedFamily family(config, [](const std::string& name, std::span<float> values) {
      // Prototypes and mixtures that differ, so that all R count.
      if (!name.ends_with("prototypes") && !name.ends_with("alpha_proj.weight")) return;
      for (float& x : values) x *= 3;
    });
    MapAnalyzer analyzer({});
    const std::vector<int32_t> ids = test::token_ids(kTokens);
    model::Context context(family.model, kTokens);
    const attention::Taps taps{{&analyzer}, {}};
    analyzer.begin_window(kTokens, ids);
    context.extend(ids, 1, &taps);
    analyzer.end_window();
    const AnalysisResults results = analyzer.results();
    // An entry is a sum of R positive products, each some 16 roundings: an error of γ of it, so that all singular
    // values behind the R-th have a Frobenius norm of at most γ‖A2‖ and a share of at most t = √m γ of all m. With that
    // the entropy is at most that of R equal shares and m of t: ln R + h(t) + t ln m.
    const double m = kTokens / 4.0, t = std::sqrt(m) * static_cast<double>(rank + 16) * 0x1p-24;
    const double beyond = std::exp(-t * std::log(t) - (1 - t) * std::log1p(-t) + t * std::log(m));
    double least = kTokens, most = 0;
    for (const LayerResults& layer : results.layers) {
      for (const HeadResults& head : layer.heads) {
        const auto value = [&](MapKind kind, Measure measure) {
          return head.measures[static_cast<size_t>(kind)][static_cast<size_t>(measure)]->mean;
        };
        const double noise = value(MapKind::noise, Measure::block_rank_entropy);
        EXPECT_LE(noise, static_cast<double>(rank) * beyond);
        EXPECT_LE(value(MapKind::noise, Measure::block_rank_r90), static_cast<double>(rank));
        EXPECT_LE(value(MapKind::noise, Measure::block_rank_r99), static_cast<double>(rank));
        most = std::max(most, noise);
        least = std::min(least, value(MapKind::positive, Measure::block_rank_entropy));
        // As a triangle both are of full rank.
        EXPECT_GT(value(MapKind::noise, Measure::rank_entropy), noise + 1);
      }
    }
    EXPECT_GT(most, static_cast<double>(rank) - 0.5) << "no head uses its prototypes";
    EXPECT_GT(least, static_cast<double>(rank)) << "so would any map be";
  }
}

TEST(MapAnalyzer, LongWindowsHaveBlockRanksOnly) {
  const Pass pass = make_pass(60, 6, false);
  AnalysisOptions options;
  options.max_map_tokens = 59;
  const AnalysisResults results = analyse({pass}, 64, options);
  const auto& measures = results.layers[0].heads[1].measures[0];
  EXPECT_FALSE(measures[static_cast<size_t>(Measure::rank_entropy)]);
  EXPECT_FALSE(measures[static_cast<size_t>(Measure::uniform_rank_entropy)]);
  EXPECT_FALSE(measures[static_cast<size_t>(Measure::permuted_rank_r90)]);
  EXPECT_NEAR(measures[static_cast<size_t>(Measure::block_rank_entropy)]->mean,
              ref::map_ranks(block_of(pass.layers[0].map(1)))[0], 1e-6);
}

TEST(MapAnalyzer, References) {
  const Pass pass = make_pass(64, 7, false);
  const AnalysisResults results = analyse({pass, make_pass(64, 8, false)}, 64);
  ref::Matrix uniform = ref::zeros(64, 64);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j <= i; ++j) uniform[i][j] = 1.0 / static_cast<double>(i + 1);
  }
  const auto& measures = results.layers[0].heads[0].measures[0];
  EXPECT_NEAR(measures[static_cast<size_t>(Measure::uniform_rank_entropy)]->mean, ref::map_ranks(uniform)[0], 1e-5);
  // Weights that were random already: their order changes little. Only the first window has this reference.
  const auto& permuted = measures[static_cast<size_t>(Measure::permuted_rank_entropy)];
  EXPECT_NEAR(permuted->mean, ref::map_ranks(pass.layers[0].map(0))[0], 2);
  EXPECT_EQ(permuted->windows, 1);
}

TEST(MapAnalyzer, SelectionLeavesTheRestOut) {
  AnalysisOptions options;
  options.selection = parse_selection({"entropy", "block"});
  const AnalysisResults results = analyse({make_pass(24, 9)}, 64, options);
  for (size_t m = 0; m < kMeasureCount; ++m) {
    const bool chosen = m == 0 || info(static_cast<Measure>(m)).group == MeasureGroup::block;
    EXPECT_EQ(results.layers[0].heads[0].measures[0][m].has_value(), chosen) << info(static_cast<Measure>(m)).name;
  }
  EXPECT_FALSE(results.layers[0].cka || results.layers[0].cosine_distance);
  EXPECT_TRUE(results.layers[0].lambda);
  EXPECT_THROW(parse_selection({"entropie"}), Error);
}

TEST(MapAnalyzer, SummaryAndExtremes) {
  const AnalysisResults results = analyse({make_pass(24, 10), make_pass(24, 11)}, 64);
  const size_t m = static_cast<size_t>(Measure::sink_mass);
  double sum = 0, count = 0, highest = -1;
  for (const LayerResults& layer : results.layers) {
    for (const HeadResults& head : layer.heads) {
      sum += head.measures[0][m]->mean;
      ++count;
      highest = std::max(highest, head.measures[0][m]->mean);
    }
  }
  EXPECT_NEAR(results.summary[0][m]->mean, sum / count, 1e-12);
  EXPECT_EQ(results.highest[m]->value, highest);
  EXPECT_LT(results.lowest[m]->value, highest);
}

TEST(MapAnalyzer, SpectrumIsThatOfTheBlock) {
  const std::vector<Pass> passes = {make_pass(40, 16), make_pass(40, 17)};
  const AnalysisResults results = analyse(passes, 64);
  std::vector<double> expected(10);  // the block has 10 rows
  for (const Pass& pass : passes) {
    const auto sigma = ref::jacobi_singular_values(block_of(pass.layers[2].map(1)));
    for (size_t k = 0; k < 10; ++k) expected[k] += sigma[k] / sigma[0] / 2;
  }
  ASSERT_EQ(results.layers[2].heads[1].spectrum.size(), 10u);
  for (size_t k = 0; k < 10; ++k) EXPECT_NEAR(results.layers[2].heads[1].spectrum[k], expected[k], 1e-9);
}

TEST(MapAnalyzer, ExcerptHoldsTheFirstMap) {
  const Pass pass = make_pass(20, 12);
  AnalysisOptions options;
  options.excerpt_tokens = 9;
  options.excerpt_bytes = 8 * 36;  // 8 heads: room for the triangles of 8 tokens
  const AnalysisResults results = analyse({pass}, 6, options);
  EXPECT_EQ(results.excerpt_tokens, 8);
  EXPECT_EQ(results.tokens.size(), 8u);
  const HeadResults& head = results.layers[0].heads[2];
  const ref::Matrix p = pass.layers[0].map(2);
  ASSERT_EQ(head.excerpt.size(), 36u);
  ASSERT_EQ(head.excerpt_signs.size(), 5u);
  size_t k = 0;
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j <= i; ++j, ++k) {
      EXPECT_NEAR(head.excerpt[k], 255 * std::sqrt(std::abs(p[i][j])), 0.51);
      EXPECT_EQ(head.excerpt_signs[k / 8] >> (k % 8) & 1, p[i][j] < 0);
    }
  }
  EXPECT_TRUE(results.layers[1].heads[0].excerpt_signs.empty());
}

// The message of the error that `call` throws, with its code in front.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(MapAnalyzer, ErrorsNameThePlace) {
  for (const bool noise : {false, true}) {
    Pass pass = make_pass(24, 13, true);
    (noise ? pass.layers[2].noise : pass.layers[2].positive)[1][17][4] = std::nan("");
    const std::string message = message_of([&] { analyse({pass}, 10); });
    EXPECT_NE(message.find("numeric: layer 4 head 1 row 17 key 4"), std::string::npos) << message;
  }
  const Pass pass = make_pass(24, 14);
  EXPECT_NE(message_of([&] {
              MapAnalyzer analyzer({});
              analyzer.begin_window(20, {});
              show(pass.layers[0], analyzer, 10);
            }).find("shape: layer 0"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              MapAnalyzer analyzer({});
              analyzer.begin_window(30, {});
              show(pass.layers[0], analyzer, 10);
            }).find("24 of 30 rows"),
            std::string::npos);
  EXPECT_NE(message_of([&] { MapAnalyzer({}).begin_window(0, {}); }).find("usage"), std::string::npos);
  EXPECT_NE(message_of([&] { MapAnalyzer({}).end_window(); }).find("usage"), std::string::npos);
  EXPECT_NE(message_of([&] {
              MapAnalyzer analyzer({});
              show(pass.layers[0], analyzer, 10);
            }).find("outside a window"),
            std::string::npos);
}

TEST(MapAnalyzer, OneTokenAndTwo) {
  for (const int64_t n : {1, 2}) {
    const AnalysisResults results = analyse({make_pass(n, 15)}, 64);
    const auto& measures = results.layers[0].heads[0].measures[0];
    EXPECT_EQ(measures[static_cast<size_t>(Measure::entropy)].has_value(), n > 1);
    EXPECT_EQ(measures[static_cast<size_t>(Measure::block_rank_entropy)].has_value(), n > 1);
    EXPECT_TRUE(measures[static_cast<size_t>(Measure::rank_entropy)].has_value());
    EXPECT_FALSE(results.layers[0].cka);
  }
}

}  // namespace
}  // namespace unchain::analysis
