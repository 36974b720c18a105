// tools/convert_diff_mlx on a synthetic checkpoint with that project's tensors: the logits are those of its formula,
// written out in double, and the tokenizer cuts texts as one with the same pieces.
#include <cmath>
#include <map>

#include "base/base64.h"
#include "cli/program_folder.h"
#include "formats/safetensors.h"
#include "ref/embedding.h"
#include "ref/lambda_rules.h"
#include "ref/layout.h"
#include "ref/projection.h"
#include "ref/rms_norm.h"
#include "ref/rope.h"
#include "support/family_case.h"
#include "support/random_values.h"
#include "tokenizer/tokenizer.h"

namespace unchain::test {
namespace {

using nlohmann::json;
using Doubles = std::vector<double>;

constexpr int64_t kLayers = 2, kHeads = 4, kHeadDim = 6, kWidth = kHeads * kHeadDim, kInner = 40, kVocabulary = 50;
constexpr double kEps = 1e-5, kTheta = 10000;

// Tensors by their names there, without "model.".
using Weights = std::map<std::string, std::pair<Shape, std::vector<float>>>;

Weights make_weights(bool differential) {
  Weights weights;
  const auto add = [&](const std::string& name, Shape shape, double mean, double spread) {
    auto values = random_floats(static_cast<size_t>(element_count(shape)), weights.size() + 1, spread);
    for (float& x : values) x += static_cast<float>(mean);
    weights[name] = {std::move(shape), std::move(values)};
  };
  add("tok_embed.weight", {kVocabulary, kWidth}, 0, 1);
  add("final_norm.scale", {kWidth}, 1, 0.2);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    for (const char* norm : {"norm_attn.scale", "norm_mlp.scale"}) add(block + norm, {kWidth}, 1, 0.2);
    for (const char* part : {"q", "k", "v", "o"})
      add(fmt::format("{}attn.{}_proj.weight", block, part), {kWidth, kWidth}, 0, 0.3);
    for (const char* part : {"gate", "up"}) add(fmt::format("{}mlp.{}.weight", block, part), {kInner, kWidth}, 0, 0.3);
    add(block + "mlp.down.weight", {kWidth, kInner}, 0, 0.3);
    if (!differential) continue;
    for (const char* part : {"q1", "k1", "q2", "k2"}) add(block + "attn.lambda_" + part, {kHeadDim}, 0, 0.3);
    add(block + "attn.subln.scale", {2 * kHeadDim}, 1, 0.2);
  }
  return weights;
}

void write_checkpoint(const std::filesystem::path& folder, const Weights& weights, const std::string& prefix) {
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape, const std::vector<float>& values) {
    tensors.push_back({name, DType::f32, shape, std::as_bytes(std::span(values)), nullptr});
  };
  for (const auto& [name, tensor] : weights) add(prefix + name, tensor.first, tensor.second);
  const std::vector<float> state(kWidth);
  if (!prefix.empty()) add("opt.final_norm.scale.m", {kWidth}, state);
  std::filesystem::create_directories(folder);
  formats::write_safetensors(folder / "latest.safetensors", tensors, {{"step", "30000"}});
  const json model = {{"dim", kWidth},           {"n_layers", kLayers},       {"n_heads_vanilla", kHeads},
                      {"qk_head_dim", kHeadDim}, {"vocab_size", kVocabulary}, {"mlp_intermediate", kInner},
                      {"block_size", 64},        {"rope_base", kTheta},       {"rms_eps", kEps},
                      {"tie_embeddings", true},  {"amp_dtype", "bfloat16"}};
  write_file(folder / "config.json", json{{"model", model}, {"train", {{"peak_lr", 4e-4}}}}.dump());
}

// Every head of each row x[T, H·E] turned, numbers 2i and 2i + 1 together.
Doubles turned(const Doubles& x) {
  Doubles out;
  for (size_t begin = 0; begin < x.size(); begin += kHeadDim) {
    const Doubles head(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(begin) + kHeadDim);
    const Doubles rotated = ref::rope(head, static_cast<int64_t>(begin) / kWidth, kTheta, true);
    out.insert(out.end(), rotated.begin(), rotated.end());
  }
  return out;
}

// logits[T, V] by the formula of arXiv 2410.05258, in the layout of its first implementation.
Doubles logits_by_hand(const Weights& weights, const std::vector<int32_t>& ids, bool differential) {
  const auto at = [&](const std::string& name) { return widen(weights.at(name).second); };
  const auto rows = static_cast<int64_t>(ids.size());
  const auto norm = [&](const Doubles& x, const std::string& name) {
    return ref::rms_norm(x, at(name), ids.size(), kWidth, kEps);
  };
  Doubles x = ref::embedding(at("tok_embed.weight"), ids, kWidth, 1);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer), attn = block + "attn.";
    const auto project = [&](const Doubles& in, const std::string& name, int64_t outputs, int64_t inputs) {
      return ref::project(in, at(block + name), rows, outputs, inputs);
    };
    const Doubles n = norm(x, block + "norm_attn.scale");
    const ref::FamilyShape s = differential ? family_shape(rows, kHeads, kHeads, kHeads / 2, kHeadDim, 2 * kHeadDim,
                                                           ref::neighbours_layout(kHeads, kHeads))
                                            : family_shape(rows, kHeads, kHeads, kHeads, kHeadDim, kHeadDim,
                                                           ref::plain_layout(kHeads, kHeads));
    ref::SignedInputs in;
    in.q = turned(project(n, "attn.q_proj.weight", kWidth, kWidth));
    in.k = turned(project(n, "attn.k_proj.weight", kWidth, kWidth));
    in.v = project(n, "attn.v_proj.weight", kWidth, kWidth);
    const double init = ref::lambda_init(layer + 1);
    const auto vector = [&](const char* name) { return at(attn + name); };
    if (differential) {
      const ref::DepthVectors depth{vector("lambda_q1"), vector("lambda_k1"), vector("lambda_q2"), vector("lambda_k2")};
      in.lambda.assign(s.row_size(), ref::depth_lambda(depth, init));
    }
    Doubles out = ref::signed_forward(s, in).out;
    if (differential) out = ref::head_norm(out, vector("subln.scale"), 2 * kHeadDim, kEps, init);
    const Doubles mixed = project(out, "attn.o_proj.weight", kWidth, kWidth);
    for (size_t i = 0; i < x.size(); ++i) x[i] += mixed[i];
    const Doubles m = norm(x, block + "norm_mlp.scale");
    Doubles inner = project(m, "mlp.gate.weight", kInner, kWidth);
    const Doubles up = project(m, "mlp.up.weight", kInner, kWidth);
    for (size_t i = 0; i < inner.size(); ++i) inner[i] *= ref::sigmoid(inner[i]) * up[i];
    const Doubles down = project(inner, "mlp.down.weight", kWidth, kInner);
    for (size_t i = 0; i < x.size(); ++i) x[i] += down[i];
  }
  return ref::project(norm(x, "final_norm.scale"), at("tok_embed.weight"), rows, kVocabulary, kWidth);
}

class CliDiffMlx : public Cli {
 protected:
  // What it says on stderr; empty where all went well.
  std::string convert(const std::string& from, const std::string& to, const std::string& more = "") {
    const std::string line = fmt::format("python3 '{}/tools/convert_diff_mlx' '{}' '{}' {} 2>'{}'", UNCHAIN_SOURCE_DIR,
                                         own(from), own(to), more, own("err"));
    const bool failed = std::system(line.c_str()) != 0;
    std::string said = read_file(own_ / "err");
    EXPECT_EQ(failed, !said.empty()) << said;
    return said;
  }
};

TEST_F(CliDiffMlx, LogitsAreThoseOfTheFormula) {
  const std::vector<int32_t> ids = {7, 3, 49, 0, 21, 21, 8, 30, 12, 5, 44, 1};
  const std::string list = fmt::format("{}", fmt::join(ids, ","));
  for (const bool differential : {true, false}) {
    // Files of before the optimizer was kept have no prefix.
    for (const std::string prefix : {"model.", ""}) {
      SCOPED_TRACE(fmt::format("differential {}, prefix '{}'", differential, prefix));
      const Weights weights = make_weights(differential);
      write_checkpoint(own_ / "mlx", weights, prefix);
      ASSERT_EQ(convert("mlx", "model"), "");
      const json inspected = run_json({"inspect", own("model")});
      EXPECT_EQ(inspected["attention"], differential ? "diff_v1" : "softmax");
      int64_t parameters = 0;
      for (const auto& [name, tensor] : weights) parameters += element_count(tensor.first);
      EXPECT_EQ(inspected["parameters"], parameters);

      const json found = run_json({"logits", own("model"), "--ids", list, "--top", "50", "--dtype", "f32"});
      const Doubles expected = logits_by_hand(weights, ids, differential);
      double largest = 0, nll = 0;
      for (const double x : expected) largest = std::max(largest, std::abs(x));
      for (size_t t = 0; t + 1 < ids.size(); ++t) {
        const double* row = &expected[t * kVocabulary];
        double sum = 0;
        for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(row[v]);
        nll += std::log(sum) - row[ids[t + 1]];
      }
      // Some hundred roundings of 2⁻²⁴ on the way, widened by wide weights. Measured: 3e-7.
      const double tolerance = 5e-6 * largest;
      EXPECT_NEAR(found["nll_nats"].get<double>(), nll / static_cast<double>(ids.size() - 1), tolerance);
      ASSERT_EQ(found["top_ids"].size(), static_cast<size_t>(kVocabulary));
      for (size_t i = 0; i < found["top_ids"].size(); ++i) {
        const size_t id = found["top_ids"][i];
        EXPECT_NEAR(found["top_logits"][i].get<double>(), expected[(ids.size() - 1) * kVocabulary + id], tolerance);
      }
    }
  }
}

// The pieces of a byte-level tokenizer as tiktoken lists them, whose ids begin at 0: control tokens have the first
// three.
TEST_F(CliDiffMlx, TheTokenizerCutsAsOneWithTheSamePieces) {
  const auto tokenizer = tokenizer::from_folder(path("llama"), "llama-bpe");
  std::string lines;
  for (int32_t id = 3; id < tokenizer->size(); ++id) {
    const std::string piece = tokenizer->decode({id});
    lines += fmt::format("{} {}\n", base64(std::as_bytes(std::span(piece))), id - 3);
  }
  write_file(own_ / "pieces.tiktoken", lines);
  write_checkpoint(own_ / "mlx", make_weights(true), "model.");
  ASSERT_EQ(convert("mlx", "model", "--tiktoken " + own("pieces.tiktoken")), "");
  const std::string text =
      "The river's 12345 banks, isn't it?\n\n  Two  blanks; ÄÖ 水 é\t{x == 0}  WE'LL see:\r\n and the end  ";
  const json ours = run_json({"tokenize", own("model"), "--text", text});
  std::vector<int32_t> expected;
  for (const int32_t id : tokenizer->encode(text)) expected.push_back(id - 3);
  EXPECT_EQ(ours["ids"].get<std::vector<int32_t>>(), expected);
  EXPECT_GT(expected.size(), 20u);
}

TEST_F(CliDiffMlx, WhatDoesNotFitIsAnError) {
  const auto expect = [&](const std::string& from, const std::string& part) {
    const std::string said = convert(from, "model");
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect("none", "none/config.json");
  Weights weights = make_weights(true);
  weights["blocks.0.attn.other.weight"] = {{2}, {0, 0}};
  write_checkpoint(own_ / "mlx", weights, "model.");
  expect("mlx", "a tensor blocks.0.attn.other.weight is not known");
  write_file(own_ / "mlx/latest.safetensors", "short");
  expect("mlx", "mlx: error");
}

}  // namespace
}  // namespace unchain::test
