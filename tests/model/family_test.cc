// Models of every member as they are decoded: the same as in training, from any split, after going back, with taps.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/config_attention.h"
#include "model/context.h"
#include "model/decoding_cost.h"
#include "model/model_file.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::test {
namespace {

using model::Context;
using model::ModelFile;

std::vector<int32_t> some_ids(size_t count) {
  Rng rng(11);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(rng.below(50)));
  return ids;
}

// NLL of each next token, from a context that has just read all of them.
std::vector<double> nll_of(Context& context, const std::vector<int32_t>& ids, const attention::Taps* taps = nullptr) {
  std::vector<double> nll(ids.size());
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  context.extend(ids, -1, taps);
  context.nll(nll, targets);
  return nll;
}

struct Saved {
  TemporaryFolder folder;
  std::vector<double> nll;  // as training computes it
  std::vector<int32_t> ids = some_ids(60);

  explicit Saved(const model::Config& config, DType type) {
    model::Trainable m(config, DType::f32, 1);
    stir(m);
    write_folder(folder.path() / "m", m);
    model::Trainable again(ModelFile::open(folder.path() / "m"), type);
    nll.resize(ids.size());
    std::vector<int32_t> targets(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    again.forward(nll, {1, 60, ids, targets, {}, {}});
  }
};

// Both run the same kernels on the same weights in another order of sums: numbers of about 5 to 1e-5; bf16 rounds
// every activation, of which decoding rounds fewer: within 0.1.
TEST(Family, DecodingAgreesWithTraining) {
  for (const std::string& member : members()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Saved saved(family_config(member), type);
      const auto model = model::load(saved.folder.path() / "m", type);
      EXPECT_EQ(model::attention_to_json(model->config.attention),
                model::attention_to_json(family_config(member).attention));
      const double tolerance = type == DType::f32 ? 2e-5 : 0.1;
      Context context(model, 80);
      EXPECT_TRUE(close(nll_of(context, saved.ids), saved.nll, tolerance)) << member << " " << info(type).name;
      // Token by token, and in pieces of all kinds; going back and on again.
      for (const std::vector<int64_t>& pieces :
           {std::vector<int64_t>{1, 1, 1, 1, 1, 55}, {30, 1, 29}, {33, 27}, {5, 50, 5}}) {
        Context piecewise(model, 80);
        std::vector<double> nll;
        size_t at = 0;
        for (const int64_t piece : pieces) {
          const auto begin = saved.ids.begin() + static_cast<std::ptrdiff_t>(at);
          piecewise.extend(std::vector<int32_t>{7, 8, 9});
          piecewise.truncate(static_cast<int64_t>(at));
          piecewise.extend(std::vector<int32_t>(begin, begin + piece));
          std::vector<int32_t> targets;
          for (size_t i = at + 1; i <= at + static_cast<size_t>(piece); ++i)
            targets.push_back(i < saved.ids.size() ? saved.ids[i] : -1);
          std::vector<double> part(targets.size());
          piecewise.nll(part, targets);
          nll.insert(nll.end(), part.begin(), part.end());
          at += static_cast<size_t>(piece);
        }
        EXPECT_TRUE(close(nll, saved.nll, tolerance)) << member << " " << info(type).name << " in pieces";
      }
      // With taps, also when the cache already holds rows.
      IdleObserver idle;
      const attention::Taps taps{{&idle}, {}};
      Context tapped(model, 80);
      EXPECT_TRUE(close(nll_of(tapped, saved.ids, &taps), saved.nll, tolerance)) << member << " tapped";
      tapped.truncate(20);
      std::vector<double> rest(40);
      std::vector<int32_t> targets(saved.ids.begin() + 21, saved.ids.end());
      targets.push_back(-1);
      tapped.extend(std::vector<int32_t>(saved.ids.begin() + 20, saved.ids.end()), -1, &taps);
      tapped.nll(rest, targets);
      EXPECT_TRUE(close(rest, std::vector<double>(saved.nll.begin() + 20, saved.nll.end()), tolerance)) << member;
      // The last rows alone.
      Context last(model, 80);
      last.extend(saved.ids, 1);
      std::vector<float> logits(50), whole(50);
      last.logits(Matrix(logits.data(), 1, 50), 0, 1);
      Context all(model, 80);
      all.extend(saved.ids);
      all.logits(Matrix(whole.data(), 1, 50), 59, 1);
      EXPECT_TRUE(close(logits, widen(whole), type == DType::f32 ? 1e-4 : 0.3)) << member;
    }
  }
}

const std::vector<std::string>& members_with_state() {
  static const std::vector<std::string> some = {"lowrank_diff", "fixed_diff", "fixed_diff, calibrated"};
  return some;
}

// Means in f32, L in double: what docs/relations.md counts, whatever the room for tokens and however many are read.
TEST(Family, TheStateDoesNotGrowWithTheText) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Saved plain(family_config("softmax"), type);
    const auto softmax = model::load(plain.folder.path() / "m", type);
    EXPECT_EQ(Context(softmax, 64).state_bytes(), 0);
    for (const std::string& member : members_with_state()) {
      const Saved saved(family_config(member), type);
      const auto model = model::load(saved.folder.path() / "m", type);
      const model::DecodingCost cost = model::decoding_cost(*model, 60);
      const int64_t log_sums = member == "lowrank_diff" ? 2 * 8 * 4 : 0;  // layers · heads · prototypes
      Context context(model, 64), roomy(model, 1024);
      EXPECT_EQ(context.state_bytes(), (cost.state_numbers - log_sums) * 4 + log_sums * 8) << member;
      EXPECT_EQ(roomy.state_bytes(), context.state_bytes()) << member;
      EXPECT_EQ(context.cache_bytes(), Context(softmax, 64).cache_bytes()) << member;
      EXPECT_EQ(roomy.cache_bytes(), Context(softmax, 1024).cache_bytes()) << member;
      roomy.extend(saved.ids);
      roomy.truncate(30);
      roomy.extend(std::vector<int32_t>{1});
      EXPECT_EQ(roomy.state_bytes(), context.state_bytes()) << member << " after going back";
    }
  }
}

// The state carries over every cut, and is had again from the cache after going back to it. Tolerances as above.
TEST(Family, AStateGoesOnFromAnySplit) {
  for (const std::string& member : members_with_state()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Saved saved(family_config(member), type);
      const auto model = model::load(saved.folder.path() / "m", type);
      const double tolerance = type == DType::f32 ? 2e-5 : 0.1;
      const auto split = [&](size_t at) { return saved.ids.begin() + static_cast<std::ptrdiff_t>(at); };
      const auto expect_rest = [&](Context& context, size_t at, const char* how) {
        const std::vector<double> expected(saved.nll.begin() + static_cast<std::ptrdiff_t>(at), saved.nll.end());
        EXPECT_TRUE(close(nll_of(context, {split(at), saved.ids.end()}), expected, tolerance))
            << member << " " << info(type).name << " " << how << " " << at;
      };
      for (size_t at = 1; at < saved.ids.size(); ++at) {
        Context context(model, 64);
        context.extend(std::vector<int32_t>(saved.ids.begin(), split(at)), 0);
        expect_rest(context, at, "split");
        context.truncate(static_cast<int64_t>(at));
        expect_rest(context, at, "back");
      }
      Context steps(model, 64);
      std::vector<double> nll;
      for (size_t at = 0; at < saved.ids.size(); ++at) {
        steps.extend(std::vector<int32_t>{saved.ids[at]});
        const std::vector<int32_t> target = {at + 1 < saved.ids.size() ? saved.ids[at + 1] : -1};
        nll.push_back(0);
        steps.nll(std::span(nll).last(1), target);
      }
      EXPECT_TRUE(close(nll, saved.nll, tolerance)) << member << " " << info(type).name << " token by token";
    }
  }
}

// The cache is read again in blocks of 512 positions, of which the last is not whole.
TEST(Family, AStateComesBackFromALongCache) {
  for (const std::string& member : members_with_state()) {
    model::Config config = family_config(member);
    config.context = 1100;
    const Saved saved(config, DType::f32);
    const auto model = model::load(saved.folder.path() / "m", DType::f32);
    const std::vector<int32_t> ids = some_ids(1060);
    Context whole(model, 1100), back(model, 1100);
    const std::vector<double> nll = nll_of(whole, ids);
    back.extend(ids, 0);
    back.truncate(1030);
    const std::vector<double> expected(nll.begin() + 1030, nll.end());
    EXPECT_TRUE(close(nll_of(back, {ids.begin() + 1030, ids.end()}), expected, 2e-5)) << member;
  }
}

// Rows of A2 from row `from` on, all layers behind each other, without the entries that lie behind a row's own.
struct NoiseRowsObserver : attention::Observer {
  explicit NoiseRowsObserver(int64_t from) : first(from) {}
  void on_maps(const attention::MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = std::max<int64_t>(0, first - panel.first_row); r < panel.rows; ++r)
        rows.insert(rows.end(), panel.noise_row(h, r), panel.noise_row(h, r) + panel.first_row + r + 1);
    }
  }
  int64_t first;
  std::vector<float> rows;
};

// A map takes the gates of tokens whose step has passed; those of prototypes come from keys that were turned back. A
// score, a number of about 5, is off by a few roundings, and a weight of at most 1 by as much: below 1e-5.
TEST(Family, MapsOfALaterStepAreThoseOfTheWhole) {
  for (const std::string& member : members_with_state()) {
    const Saved saved(family_config(member), DType::f32);
    const auto model = model::load(saved.folder.path() / "m", DType::f32);
    const auto part = [&](int64_t first, int64_t last) {
      return std::vector<int32_t>(saved.ids.begin() + first, saved.ids.begin() + last);
    };
    for (const int64_t cut : {1, 20, 49}) {
      NoiseRowsObserver all(cut), later(cut);
      Context whole(model, 64), split(model, 64);
      const attention::Taps see_all{{&all}, {}}, see_later{{&later}, {}};
      whole.extend(part(0, 50), -1, &see_all);
      split.extend(part(0, cut));
      split.extend(part(cut, 50), -1, &see_later);
      EXPECT_TRUE(close(later.rows, widen(all.rows), 1e-5)) << member << " " << cut;
      // The maps have done the step's work; the state has moved on all the same.
      const std::vector<double> expected(saved.nll.begin() + 50, saved.nll.end());
      EXPECT_TRUE(close(nll_of(split, part(50, 60)), expected, 2e-5)) << member << " " << cut;
    }
  }
}

// All rows in one panel, and nothing done to them: the same numbers as in panels of 128 rows.
TEST(Family, WholeMapsAreThoseOfPanels) {
  struct Whole : attention::Editor {
    bool wants_whole_maps() const override { return true; }
    void edit_maps(attention::MapPanel& panel) override {
      EXPECT_EQ(panel.rows, 300);
      EXPECT_EQ(panel.noise_is_state, is_state);
    }
    bool is_state = false;
  };
  for (const std::string& member : members()) {
    model::Config config = family_config(member);
    config.context = 300;
    TemporaryFolder folder;
    model::Trainable m(config, DType::f32, 1);
    stir(m);
    write_folder(folder.path() / "m", m);
    const auto model = model::load(folder.path() / "m", DType::f32);
    IdleObserver idle;
    Whole editor;
    editor.is_state = config.attention.has_state();
    const attention::Taps panels{{&idle}, {}}, whole{{}, {&editor}};
    Context a(model, 300), b(model, 300);
    EXPECT_TRUE(same_bits(nll_of(a, some_ids(300), &panels), nll_of(b, some_ids(300), &whole))) << member;
  }
}

// What taps show: rows of A1 and A2 sum to 1 (less where A1 has an extra entry), λ is what the layer has.
struct SumObserver : attention::Observer {
  void on_maps(const attention::MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        double positive = 0, noise = 0;
        for (int64_t j = 0; j < panel.keys; ++j) {
          positive += static_cast<double>(panel.positive_row(h, r)[j]);
          if (panel.noise) noise += static_cast<double>(panel.noise_row(h, r)[j]);
        }
        least = std::min(least, positive);
        most = std::max(most, positive);
        if (panel.noise) worst_noise = std::max(worst_noise, std::abs(noise - 1));
        has_noise = panel.noise != nullptr;
      }
    }
  }
  double least = 9, most = -9, worst_noise = 0;
  bool has_noise = false;
};

TEST(Family, TapsShowBothMaps) {
  for (const std::string& member : members()) {
    const Saved saved(family_config(member), DType::f32);
    Context context(model::load(saved.folder.path() / "m", DType::f32), 80);
    SumObserver sums;
    const attention::Taps taps{{&sums}, {}};
    context.extend(saved.ids, -1, &taps);
    const bool extra = member == "off_by_one" || member == "sink";
    EXPECT_NEAR(sums.most, extra ? sums.most : 1, 1e-5) << member;
    EXPECT_TRUE(extra ? sums.most < 1 : sums.least > 1 - 1e-5) << member;
    EXPECT_EQ(sums.has_noise, member.find("diff") != std::string::npos) << member;
    EXPECT_LT(sums.worst_noise, 1e-5) << member;
  }
}

// A norm makes keys forget their length, up to its eps: a millionth of them. What prototypes see comes behind it.
TEST(Family, PrototypesSeeKeysAfterTheirNorm) {
  const auto nll = [](const std::string& scaled) {
    TemporaryFolder folder;
    TinyModel tiny;
    tiny.architecture = "gemma3";
    tiny.tokenizer = "";
    tiny.attention = "lowrank_diff";
    tiny.change = [&](const std::string& name, std::vector<float>& values) {
      if (name.ends_with(scaled)) std::for_each(values.begin(), values.end(), [](float& x) { x *= 4; });
    };
    write_tiny_model(folder.path(), tiny);
    Context context(model::load(folder.path(), DType::f32), 80);
    return nll_of(context, some_ids(60));
  };
  const std::vector<double> plain = nll("nothing");
  EXPECT_TRUE(close(nll("self_attn.k_proj.weight"), plain, 1e-4));
  EXPECT_FALSE(close(nll("self_attn.prototypes"), plain, 1e-2));
}

TEST(Family, SettingsComeBackFromTheirFile) {
  model::Config c = family_config("grouped_diff");
  c.attention.ratio = 2;
  c.attention.lambda = attention::LambdaRule::token;
  c.attention.head_norm = false;
  c.attention.last_layer = 0;
  c.attention.lambda_gain = true;
  const Saved saved(c, DType::f32);
  const model::Config back = ModelFile::open(saved.folder.path() / "m").config();
  EXPECT_EQ(model::attention_to_json(back.attention), model::attention_to_json(c.attention));
  EXPECT_EQ(back.attention.last_layer, 0);
  EXPECT_TRUE(back.attention.lambda_gain);
  Context context(model::load(saved.folder.path() / "m", DType::f32), 80);
  EXPECT_TRUE(close(nll_of(context, saved.ids), saved.nll, 2e-5));
  EXPECT_TRUE(ModelFile::open(saved.folder.path() / "m").unused_tensors().empty());
}

TEST(Family, FilesSayWhatTheyAre) {
  const auto type_of = [](const model::Config& c) {
    return nlohmann::json::parse(model::config_json(c)).at("model_type").get<std::string>();
  };
  EXPECT_EQ(type_of(family_config("softmax")), "llama");
  EXPECT_EQ(type_of(family_config("diff_v1")), "diffllama");
  EXPECT_EQ(type_of(family_config("diff_v2")), "unchain");
  // Numbers as people write them, which read back as the same floats.
  EXPECT_NE(model::config_json(family_config("softmax")).find("\"rms_norm_eps\": 1e-05,"), std::string::npos);
  model::Config affine = family_config("diff_v1");
  affine.attention.head_norm_affine = true;
  EXPECT_EQ(type_of(affine), "unchain");
}

TEST(Family, BadDescriptions) {
  const auto parse = [](const std::string& attention, int heads = 8) {
    return [=] {
      model::config_from_json(R"({"model_type": "unchain", "vocab_size": 50, "hidden_size": 32, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "num_attention_heads": )" +
                                  std::to_string(heads) + attention + "}",
                              "config.json");
    };
  };
  EXPECT_NO_THROW(parse(R"(, "attention": {"preset": "diff_v2"})")());
  expect_error(parse(""), ErrorCode::format, {"config.json", "'attention' is missing"});
  expect_error(parse(R"(, "attention": 3)"), ErrorCode::format, {"'attention' is no object"});
  expect_error(parse(R"(, "attention": {})"), ErrorCode::format, {"'preset' is missing", "diff_v2"});
  expect_error(parse(R"(, "attention": {"preset": "diff_v9"})"), ErrorCode::format, {"config.json", "diff_v9"});
  expect_error(parse(R"(, "attention": {"preset": "diff_v1", "pair": 1})"), ErrorCode::format, {"'pair'", "pairs"});
  expect_error(parse(R"(, "attention": {"preset": "diff_v1", "pairs": "thirds"})"), ErrorCode::format, {"halves"});
  expect_error(parse(R"(, "attention": {"preset": "diff_v1", "layers": [1, 5]})"), ErrorCode::format, {"up to 5"});
  expect_error(parse(R"(, "attention": {"preset": "lowrank_diff", "rank": 0})"), ErrorCode::format, {"rank 0"});
  // Ranks from 1 to the width that they are ranks of: a head of 32/8 numbers, queries of 4 such heads in one map, a
  // model of 32 under heads of 16, and the longest text.
  const auto ranked = [&](const std::string& member, int rank, const std::string& more = "") {
    return parse(R"(, "max_position_embeddings": 64)" + more + R"(, "attention": {"preset": )" + member +
                 R"(, "rank": )" + std::to_string(rank) + "}");
  };
  const std::string prototypes = R"("lowrank_diff")", changes = R"("shared_diff")",
                    calibrated = R"("fixed_diff", "calibrated": true)", wide_heads = R"(, "head_dim": 16)";
  for (const std::string& member : {prototypes, changes, calibrated})
    expect_error(ranked(member, 0), ErrorCode::format, {"config.json", "rank 0", "expected 1 to"});
  EXPECT_NO_THROW(ranked(prototypes, 4)());
  expect_error(ranked(prototypes, 5), ErrorCode::format, {"config.json", "rank 5", "1 to 4, the head width"});
  expect_error(ranked(prototypes, 100), ErrorCode::format, {"lowrank_diff", "rank 100", "1 to 4"});
  EXPECT_NO_THROW(ranked(changes, 16)());
  expect_error(ranked(changes, 17), ErrorCode::format, {"shared_diff", "rank 17", "1 to 16", "of its queries"});
  EXPECT_NO_THROW(ranked(changes, 32, wide_heads)());
  expect_error(ranked(changes, 33, wide_heads), ErrorCode::format, {"rank 33", "1 to 32", "hidden_size"});
  EXPECT_NO_THROW(ranked(calibrated, 64)());
  expect_error(ranked(calibrated, 65), ErrorCode::format, {"rank 65", "1 to 64", "max_position_embeddings"});
  for (const char* member : {"softmax", "diff_v2", "grouped_diff", "lowrank_diff"}) {
    const std::string text = std::string(R"(, "attention": {"preset": ")") + member + R"(", "accounting": "halved"})";
    expect_error(parse(text), ErrorCode::format, {member, "accounting \"halved\"", "leave it out"});
  }
  expect_error(parse(R"(, "attention": {"preset": "fixed_diff", "decays": [1.5]})"), ErrorCode::format, {"1.5"});
  expect_error(parse(R"(, "attention": {"preset": "grouped_diff", "ratio": 3})"), ErrorCode::format, {"groups of 3"});
  expect_error(parse(R"(, "attention": {"preset": "gated", "gate": "row"})"), ErrorCode::format,
               {"'gate'", "head or element"});
  expect_error(parse(R"(, "attention": {"preset": "fixed_diff", "calibrated": true})"), ErrorCode::format, {"rank 0"});
  expect_error(parse(R"(, "attention": {"preset": "diff_v2", "calibrated": true})"), ErrorCode::format,
               {"only fixed_diff"});
}

TEST(Family, ATextLongerThanItsCalibratedMapIsRefused) {
  const Saved saved(family_config("fixed_diff, calibrated"), DType::f32);
  Context context(model::load(saved.folder.path() / "m", DType::f32), 80);
  context.extend(some_ids(64));
  expect_error([&] { context.extend(std::vector<int32_t>{1}); }, ErrorCode::shape, {"65 tokens", "64 rows"});
}

TEST(Family, AMissingTensorIsNamed) {
  TemporaryFolder folder;
  model::Trainable m(family_config("lowrank_diff"), DType::f32, 1);
  write_folder(folder.path() / "m", m);
  auto config = nlohmann::json::parse(read_text(folder.path() / "m" / "config.json"));
  config["attention"] = {{"preset", "diff_v2"}};
  write_text(folder.path() / "m" / "config.json", config.dump());
  expect_error([&] { model::load(folder.path() / "m", DType::f32); }, ErrorCode::shape, {"q_proj", "[96, 24]"});
  config["attention"] = {{"preset", "gated"}};
  write_text(folder.path() / "m" / "config.json", config.dump());
  expect_error([&] { model::load(folder.path() / "m", DType::f32); }, ErrorCode::format,
               {"layer 0", "gate_proj", "gated"});
}

}  // namespace
}  // namespace unchain::test
