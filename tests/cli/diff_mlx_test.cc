// tools/convert_diff_mlx on a synthetic checkpoint with that project's tensors: the logits are those of its formula,
// written out in double, and the tokenizer cuts texts as one with the same pieces. What does not fit changes no file.
#include <cmath>
#include <cstring>
#include <functional>
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
  RunResult convert(const std::string& arguments) {
    const TemporaryFolder said;
    const std::string line = fmt::format("cd '{}' && python3 '{}/tools/convert_diff_mlx' {} 2>'{}'",
                                         own_.path().string(), UNCHAIN_SOURCE_DIR, arguments, (said / "err").string());
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, "", read_file(said / "err")};
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
      ASSERT_EQ(convert("mlx model").err, "");
      EXPECT_EQ(names(own_ / "model", "").size(), 2u);
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
  ASSERT_EQ(convert("mlx model --tiktoken pieces.tiktoken").err, "");
  const std::string text =
      "The river's 12345 banks, isn't it?\n\n  Two  blanks; ÄÖ 水 é\t{x == 0}  WE'LL see:\r\n and the end  ";
  const json ours = run_json({"tokenize", own("model"), "--text", text});
  std::vector<int32_t> expected;
  for (const int32_t id : tokenizer->encode(text)) expected.push_back(id - 3);
  EXPECT_EQ(ours["ids"].get<std::vector<int32_t>>(), expected);
  EXPECT_GT(expected.size(), 20u);
}

// A checkpoint in own/mlx after `spoil`, and what is said of it.
struct BadInput {
  const char* name;
  std::function<void(const std::filesystem::path& own)> spoil;
  int status;
  const char* part;
  std::string arguments = "mlx model";
};

void PrintTo(const BadInput& input, std::ostream* out) {
  *out << input.name;
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + rest;
}

using Spoil = decltype(BadInput::spoil);

Spoil file_is(const std::string& bytes) {
  return [=](const std::filesystem::path& own) { write_file(own / "mlx/latest.safetensors", bytes); };
}

Spoil header_is(const std::string& text) {
  return file_is(with_length(text.size(), text));
}

// The file without all after byte `keep`, counted from its end if negative.
Spoil cut_to(int64_t keep) {
  return [=](const std::filesystem::path& own) {
    const auto path = own / "mlx/latest.safetensors";
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    std::filesystem::resize_file(path, static_cast<uint64_t>(keep < 0 ? size + keep : keep));
  };
}

const std::string kQuery = "model.blocks.0.attn.q_proj.weight";

// The header with this key of kQuery changed.
Spoil query_has(const std::string& key, const json& value) {
  return [=](const std::filesystem::path& own) {
    const std::string bytes = read_file(own / "mlx/latest.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    json header = json::parse(bytes.substr(8, length));
    (key.empty() ? header[kQuery] : header[kQuery][key]) = value;
    const std::string text = header.dump();
    write_file(own / "mlx/latest.safetensors", with_length(text.size(), text + bytes.substr(8 + length)));
  };
}

Spoil weights_have(const std::string& name) {
  return [=](const std::filesystem::path& own) {
    Weights weights = make_weights(true);
    weights[name] = {{2}, {0, 0}};
    write_checkpoint(own / "mlx", weights, "model.");
  };
}

// The section `model` of config.json with this field changed, or removed if null.
Spoil model_has(const std::string& field, const json& value) {
  return [=](const std::filesystem::path& own) {
    json config = json::parse(read_file(own / "mlx/config.json"));
    config["model"][field] = value;
    if (value.is_null()) config["model"].erase(field);
    write_file(own / "mlx/config.json", config.dump());
  };
}

Spoil also_there(const std::string& name, const std::string& bytes) {
  return [=](const std::filesystem::path& own) { write_file(own / name, bytes); };
}

void nothing(const std::filesystem::path&) {}

const BadInput kBadInputs[] = {
    {"NoFolder", nothing, 3, "none/config.json", "none model"},
    {"NoFile", [](const auto& own) { std::filesystem::remove(own / "mlx/latest.safetensors"); }, 3, "No such file"},
    {"EmptyFile", cut_to(0), 3, "in a file of 0"},
    {"CutInLength", cut_to(5), 3, "in a file of 5"},
    {"CutInHeader", cut_to(100), 3, "in a file of 100"},
    {"CutInData", cut_to(-4), 3, "<= "},
    {"MoreData", cut_to(+1'000'000), 3, "bytes of data, expected as many"},
    {"LengthOf2To63", file_is(with_length(uint64_t{1} << 63, "{}")), 3, "a header of 9223372036854775808 bytes"},
    {"LengthOf2To45", file_is(with_length(uint64_t{1} << 45, "{}")), 3, "a header of 35184372088832 bytes"},
    {"LengthOverTheLimit",
     [](const auto& own) {
       write_file(own / "mlx/latest.safetensors", with_length(100'000'001, "{}"));
       std::filesystem::resize_file(own / "mlx/latest.safetensors", 100'000'100);
     },
     3, "expected at most 100000000"},
    {"HeaderWithoutTensors", header_is("{}"), 3, "no tensor of a model"},
    {"HeaderOfOptimizer", header_is(R"({"opt.x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})"), 3,
     "no tensor of a model"},
    {"HeaderIsList", header_is("[1]"), 3, "header: [1], expected a JSON object"},
    {"HeaderIsText", header_is("{\xff}"), 3, "header: "},
    {"HeaderIsDeep", header_is(std::string(100'000, '[')), 3, "expected a JSON object"},
    {"HeaderIsNested", header_is(R"({"a":{"b":{"c":{}}}})"), 3, "tensor 'a': data_offsets None"},
    {"EntryIsText", query_has("", "F32"), 3, "q_proj.weight': 'F32', expected dtype, shape"},
    {"ShapeOfNone", query_has("shape", json::array()), 3, "q_proj.weight': shape []"},
    {"ShapeOfNoRows", query_has("shape", {0, 16}), 3, "q_proj.weight': shape [0, 16]"},
    {"ShapeOfOne", query_has("shape", json::array({kWidth * kWidth})), 3, "q_proj.weight': shape [576], expected rows"},
    {"ShapeIsReal", query_has("shape", {24.0, 24.0}), 3, "q_proj.weight': shape [24.0, 24.0]"},
    {"ShapeIsBoolean", query_has("shape", {true, 576}), 3, "q_proj.weight': shape [True, 576]"},
    {"ShapeOfOtherBytes", query_has("shape", {kWidth, kWidth + 1}), 3, "2304 bytes, expected those of F32 of shape"},
    {"RowsOfNoWholeHeads", query_has("shape", {16, 36}), 3, "shape [16, 36], expected rows in heads of qk_head_dim 6"},
    {"TypeIsUnknown", query_has("dtype", "F33"), 3, "q_proj.weight': dtype 'F33'"},
    {"TypeIsList", query_has("dtype", {"F32"}), 3, "q_proj.weight': dtype ['F32']"},
    {"OffsetsReversed", query_has("data_offsets", {2304, 0}), 3, "q_proj.weight': data_offsets [2304, 0]"},
    {"OffsetsPastTheEnd", query_has("data_offsets", {0, 1 << 30}), 3, "q_proj.weight': data_offsets [0, 1073741824]"},
    {"OffsetsNegative", query_has("data_offsets", {-2304, 0}), 3, "q_proj.weight': data_offsets [-2304, 0]"},
    {"OffsetsReal", query_has("data_offsets", {0.0, 2304.0}), 3, "q_proj.weight': data_offsets [0.0, 2304.0]"},
    {"OffsetsBoolean", query_has("data_offsets", {false, true}), 3, "q_proj.weight': data_offsets [False, True]"},
    {"OffsetsOverlap", query_has("data_offsets", {4, 2308}), 3, "where the one before ends"},
    {"NameIsUnknown", weights_have("blocks.0.attn.other.weight"), 3, "attn.other.weight': not known"},
    {"NameTwice",
     [](const auto& own) {
       Weights weights = make_weights(true);
       weights["model.final_norm.scale"] = weights["final_norm.scale"];
       write_checkpoint(own / "mlx", weights, "");
     },
     3, "with and without 'model.'"},
    {"ConfigIsText", also_there("mlx/config.json", "short"), 3, "config.json: "},
    {"ConfigIsList", also_there("mlx/config.json", "[1]"), 3, "config.json: [1]"},
    {"ConfigIsDeep", also_there("mlx/config.json", std::string(100'000, '[')), 3, "expected a JSON object"},
    {"ConfigWithoutModel", also_there("mlx/config.json", "{}"), 3, "config.json: model: None"},
    {"FieldIsMissing", model_has("rms_eps", nullptr), 3, "model.rms_eps: missing, expected a positive number"},
    {"FieldIsText", model_has("dim", "24"), 3, "model.dim: '24', expected a positive integer"},
    {"FieldIsBoolean", model_has("n_layers", true), 3, "model.n_layers: True"},
    {"FieldIsZero", model_has("qk_head_dim", 0), 3, "model.qk_head_dim: 0"},
    {"HeadIsOdd", model_has("qk_head_dim", 3), 3, "qk_head_dim 3, an even number"},
    {"NoPieces", also_there("pieces", ""), 3, "pieces: 0 pieces", "mlx model --tiktoken pieces"},
    {"PieceOfOtherText", also_there("pieces", "QQ== 0\n?Qg== 1\n"), 3, "b'?Qg== 1'", "mlx model --tiktoken pieces"},
    {"RanksWithHole", also_there("pieces", "QQ== 0\nQg== 2\n"), 3, "2 pieces", "mlx model --tiktoken pieces"},
    {"OutIsNew", cut_to(-4), 3, "<= ", "mlx new/model"},
    {"OutIsFolder", nothing, 2, "the same folder", "mlx mlx"},
    {"OutIsFolderAfterSlash", nothing, 2, "the same folder", "mlx mlx/"},
    {"OutIsFolderByLink", [](const auto& own) { std::filesystem::create_directory_symlink("mlx", own / "link"); }, 2,
     "the same folder", "mlx link"},
    {"OutIsFile", also_there("file", "kept"), 3, "Not a directory", "mlx file"},
    {"OutIsBelowFile", also_there("file", "kept"), 3, "Not a directory", "mlx file/model"},
    {"OutHasFolderOfThatName", [](const auto& own) { std::filesystem::create_directories(own / "full/config.json"); },
     3, "full/config.json: a folder", "mlx full"},
};

class CliDiffMlxBad : public CliDiffMlx, public testing::WithParamInterface<BadInput> {
 protected:
  // Each file and folder with a hash of what it holds.
  std::map<std::string, size_t> files() const {
    std::map<std::string, size_t> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(own_.path())) {
      const std::string bytes = entry.is_regular_file() ? read_file(entry.path()) : "";
      files[entry.path().string()] = std::hash<std::string>()(bytes);
    }
    return files;
  }
};

// In `model` there is another model.
TEST_P(CliDiffMlxBad, IsSaidAndChangesNothing) {
  write_checkpoint(own_ / "mlx", make_weights(true), "model.");
  std::filesystem::create_directory(own_ / "model");
  write_file(own_ / "model/config.json", "kept");
  GetParam().spoil(own_.path());
  const auto before = files();
  const RunResult run = convert(GetParam().arguments);
  EXPECT_EQ(run.status, GetParam().status) << run.err;
  EXPECT_NE(run.err.find(GetParam().part), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("Traceback"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("convert_diff_mlx: "), 0u) << run.err;
  EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << run.err;
  EXPECT_LT(run.err.size(), 1000u);
  EXPECT_TRUE(files() == before) << "files have changed";
}

INSTANTIATE_TEST_SUITE_P(Inputs, CliDiffMlxBad, testing::ValuesIn(kBadInputs),
                         [](const auto& input) { return std::string(input.param.name); });

}  // namespace
}  // namespace unchain::test
