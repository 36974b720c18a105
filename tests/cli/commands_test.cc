// Every command: options, keys of the JSON, what goes to stdout, and the exit status.
#include <cmath>
#include <map>

#include "cli/program_folder.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class CliCommands : public Cli {};

TEST_F(CliCommands, HelpListsTheOptions) {
  const std::map<std::string, std::vector<std::string>> options = {
      {"inspect", {"MODEL", "--threads", "--dtype", "--json"}},
      {"tokenize", {"MODEL", "--text", "FILE", "--special", "--json"}},
      {"logits", {"--text", "--ids", "--top", "--special", "--threads", "--dtype", "--json"}},
      {"generate", {"--prompt", "-n", "--temperature", "--top-p", "--seed", "--special", "--threads", "--dtype"}},
      {"perplexity", {"--mode", "--window", "--stride", "--max-windows", "--threads", "--dtype", "--json"}},
      {"analyze", {"--text", "--ids", "--maps", "-o", "--window", "--windows", "--metrics", "--seed", "--dtype"}},
      {"capture", {"--text", "--ids", "--layers", "--heads", "-o", "--special", "--dtype"}},
      {"export", {"-o", "--type", "--json"}}};
  const RunResult all = run_program({"--help"});
  EXPECT_EQ(all.status, 0);
  for (const auto& [command, names] : options) {
    EXPECT_NE(all.out.find(command), std::string::npos) << command;
    const RunResult help = run_program({command, "--help"});
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_EQ(help.err, "") << command;
    for (const std::string& name : names) EXPECT_NE(help.out.find(name), std::string::npos) << command << " " << name;
  }
  const RunResult version = run_program({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.find("unchain "), 0u);
}

TEST_F(CliCommands, UsageIsTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"perplexity", path("llama"), path("text.txt"), "--stride", "4"},
      {"perplexity", path("llama"), path("text.txt"), "--stride", "4", "--mode", "half"},
      {"analyze", "--maps", "x", "-o", own("a"), "--window", "512"},
      {"inspect"},
      {"inspect", path("llama"), "--no-such-option"},
      {"inspect", path("llama"), "surplus"},
      {"logits", path("llama")},
      {"logits", path("llama"), "--text", "a", "--ids", "1"},
      {"logits", path("llama"), "--text", ""},
      {"logits", path("llama"), "--ids", ""},
      {"logits", path("llama"), "--ids", "1,x"},
      {"logits", path("llama"), "--ids", "1,-4"},
      {"logits", path("llama"), "--ids", "99999999999"},
      {"logits", path("llama"), "--ids", "5,900"},
      {"logits", path("llama"), "--ids", "5", "--top", "0"},
      {"logits", path("llama"), "--ids", "5", "--dtype", "f64"},
      {"logits", path("llama"), "--ids", "5", "--threads", "-1"},
      {"tokenize", path("llama"), "--text", "a", path("text.txt")},
      {"tokenize", path("llama"), "--text", "a", "--pretokenizer", "none-such"},
      {"generate", path("llama")},
      {"generate", path("llama"), "--prompt", "a", "-n", "0"},
      {"generate", path("llama"), "--prompt", "a", "--top-p", "0"},
      {"generate", path("llama"), "--prompt", "a", "--top-p", "1.01"},
      {"generate", path("llama"), "--prompt", "a", "--temperature", "-1"},
      {"perplexity", path("llama")},
      {"perplexity", path("llama"), path("text.txt"), "--mode", "whole"},
      {"perplexity", path("llama"), path("text.txt"), "--window", "1"},
      {"perplexity", path("llama"), path("text.txt"), "--mode", "sliding", "--window", "8", "--stride", "8"},
      {"analyze", path("llama"), "--text", "a"},
      {"analyze", "-o", own("a")},
      {"analyze", path("llama"), path("text.txt"), "-o", own("a"), "--window", "3"},
      {"analyze", path("llama"), path("text.txt"), "-o", own("a"), "--windows", "0"},
      {"analyze", path("llama"), path("text.txt"), "-o", own("a"), "--metrics", "beauty"},
      {"analyze", path("llama"), "--maps", "x", "-o", own("a")},
      {"analyze", "--maps", "x", "--ids", "y", "-o", own("a")},
      {"capture", path("llama"), "--text", "a b", "-o", own("m"), "--layers", "3"},
      {"capture", path("llama"), "--text", "a b", "-o", own("m"), "--heads", "4"},
      {"export", path("llama"), "-o", own("x.gguf"), "--type", "q3_k"},
      {"export", path("llama")}};
  for (const auto& arguments : wrong) {
    std::string line;
    for (const std::string& a : arguments) line.append(a).append(" ");
    const RunResult result = run_program(arguments);
    EXPECT_EQ(result.status, 2) << line << result.err;
    EXPECT_EQ(result.out, arguments.size() > 1 && arguments[0] == "generate" ? result.out : "") << line;
    EXPECT_NE(result.err, "") << line;
  }
  EXPECT_EQ(own_.files(), 0u);
}

TEST_F(CliCommands, UnknownCommandsGetTheNearestName) {
  for (const auto& [word, nearest] : {std::pair{"perplexty", "perplexity"}, {"Analyse", "analyze"}, {"x", "export"}})
    expect_failure({word}, 2, {std::string("'") + word + "' is no command", std::string("'") + nearest + "'"});
  expect_failure({"inspct", path("llama"), "--no-such"}, 2, {"'inspct'", "'inspect'"});
  expect_failure({}, 2, {"give a command"});
}

TEST_F(CliCommands, OptionsThatDoNothingAreRefused) {
  expect_failure({"perplexity", path("llama"), path("text.txt"), "--stride", "4"}, 2, {"--stride", "--mode sliding"});
  run_json({"capture", path("llama"), "--text", "the sea", "-o", own("m")});
  const std::vector<std::vector<std::string>> surplus = {{"--window", "8"}, {"--windows", "2"},         {"--text", "a"},
                                                         {"--special"},     {"--pretokenizer", "gpt2"}, {"--ids", "x"},
                                                         {"--dtype", "f32"}};
  for (const auto& options : surplus) {
    std::vector<std::string> arguments = {"analyze", "--maps", own("m"), "-o", own("a")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_failure(arguments, 2, {"--maps", options[0]});
  }
  expect_failure({"analyze", path("llama"), path("text.txt"), "--maps", own("m"), "-o", own("a")}, 2, {"MODEL, FILE"});
  EXPECT_FALSE(std::filesystem::exists(own("a")));
  EXPECT_EQ(run_program({"analyze", "--maps", own("m"), "-o", own("a"), "--seed", "3", "--threads", "1", "--metrics",
                         "rows", "--json", own("r")})
                .status,
            0);
}

// Commands that read a text, with the arguments that give it.
std::vector<std::vector<std::string>> readers(const std::string& model, const std::string& text,
                                              const std::string& file, const std::string& out) {
  return {{"tokenize", model, "--text", text},
          {"logits", model, "--text", text},
          {"generate", model, "--prompt", text, "-n", "2"},
          {"capture", model, "--text", text, "-o", out + "m"},
          {"tokenize", model, file},
          {"perplexity", model, file, "--window", "4"},
          {"analyze", model, file, "--window", "6", "--windows", "1", "-o", out}};
}

size_t count(const std::string& text, const std::string& part) {
  size_t result = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++result;
  return result;
}

TEST_F(CliCommands, BytesWithoutAPieceAreToldOnce) {
  write_tiny_model(own_ / "gap", {});
  json tokenizer = json::parse(read_file(own_ / "gap/tokenizer.json"));
  json& pieces = tokenizer["model"]["vocab"];
  for (const char* piece : {"ÿ", "À"}) {  // the bytes ff and c0; no merge needs them
    pieces[std::string("gone") + piece] = pieces[piece];
    pieces.erase(piece);
  }
  const std::string text = "a\xff river \xff\xc0 and the sea";
  write_file(own_ / "text", text);
  for (const bool unknown : {false, true}) {
    if (unknown) tokenizer["model"]["unk_token"] = "<|endoftext|>";
    write_file(own_ / "gap/tokenizer.json", tokenizer.dump());
    for (const auto& arguments : readers(own("gap"), text, own("text"), own("out"))) {
      const RunResult result = run_program(arguments);
      EXPECT_EQ(result.status, 0) << arguments[0] << result.err;
      EXPECT_EQ(count(result.err, "has no piece"), 1u) << arguments[0] << result.err;
      const std::string& where = arguments[2].starts_with("--") ? arguments[2] : own("text");
      const std::string expected =
          where + ": the vocabulary has no piece for 3 of its bytes (hex c0, ff 2 times); they " +
          (unknown ? "become the unknown token 0 ('<|endoftext|>'), 3 in all\n" : "are left out\n");
      EXPECT_NE(result.err.find(expected), std::string::npos) << arguments[0] << result.err;
    }
    // The same in every form of the model.
    std::filesystem::remove_all(own_ / "copy");
    EXPECT_EQ(run_program({"export", own("gap"), "-o", own("gap.gguf")}).status, 0);
    EXPECT_EQ(run_program({"export", own("gap.gguf"), "-o", own("copy")}).status, 0);
    const json ids = run_json({"tokenize", own("gap"), own("text")})["ids"];
    for (const char* copy : {"gap.gguf", "copy"})
      EXPECT_EQ(run_json({"tokenize", own(copy), own("text")})["ids"], ids) << copy;
    const RunResult about = run_program({"inspect", own("gap")});
    EXPECT_NE(about.out.find("2 byte values have no piece"), std::string::npos) << about.out;
    EXPECT_NE(about.out.find("(c0 ff)"), std::string::npos) << about.out;
  }
  tokenizer["model"]["unk_token"] = nullptr;
  write_file(own_ / "gap/tokenizer.json", tokenizer.dump());
  for (const char* command : {"logits", "generate"})
    expect_failure({command, own("gap"), command[0] == 'l' ? "--text" : "--prompt", "\xff"}, 3, {"no tokens"});
  for (const auto& arguments : readers(path("llama"), text, own("text"), own("out")))
    EXPECT_EQ(count(run_program(arguments).err, "has no piece"), 0u) << arguments[0];
}

TEST_F(CliCommands, TheTokenizerIsOpenedOnce) {
  for (auto arguments : readers(path("gemma3"), text(), path("text.txt"), own("out"))) {
    arguments.insert(arguments.end(), {"--pretokenizer", "gpt2"});
    const RunResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count(result.err, "--pretokenizer gpt2 is ignored"), 1u) << arguments[0] << result.err;
  }
}

TEST_F(CliCommands, MoreThanTheTrainedContextIsTold) {
  std::string text;  // the model has 256 positions
  for (int i = 0; i < 300; ++i) text += "7";
  write_file(own_ / "text", text);
  auto all = readers(path("llama"), text, own("text"), own("out"));
  for (auto& arguments : all) {
    for (std::string& argument : arguments) {
      if (argument == "4" || argument == "6") argument = "300";
    }
    const RunResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << arguments[0] << result.err;
    EXPECT_EQ(count(result.err, "beyond the 256 positions"), arguments[0] == "tokenize" ? 0u : 1u)
        << arguments[0] << result.err;
  }
  EXPECT_EQ(count(run_program({"generate", path("llama"), "--prompt", "7", "-n", "255"}).err, "beyond"), 0u);
}

TEST_F(CliCommands, MissingTokenizersAreAnsweredByWhatTheCommandTakes) {
  const std::string none = tiny("llama_grouped").string();
  write_file(own_ / "text", "a b c d");
  for (const auto& arguments : readers(none, "a", own("text"), own("out"))) {
    const bool takes_ids = arguments[0] == "logits" || arguments[0] == "capture" || arguments[0] == "analyze";
    expect_failure(
        arguments, 3,
        {"neither tokenizer.json nor tokenizer.model", takes_ids ? std::string("--ids") : arguments[0] + " needs one"});
  }
}

TEST_F(CliCommands, KeysAndOnlyJsonOnStdout) {
  for (const char* model : {"llama", "gemma3"}) {
    SCOPED_TRACE(model);
    const json about = run_json({"inspect", path(model)});
    expect_keys(about, {"architecture", "attention", "parameters", "layers", "heads", "kv_heads", "head_dim",
                        "vocabulary", "dtype_counts"});
    EXPECT_EQ(about["architecture"], model);
    EXPECT_EQ(about["layers"], 3);
    EXPECT_EQ(about["kv_heads"], 2);
    expect_keys(run_json({"tokenize", path(model), "--text", "a b"}), {"ids", "pieces"});
    const json logits = run_json({"logits", path(model), "--text", "a b", "--top", "7"});
    expect_keys(logits, {"ids", "top_ids", "top_logits", "nll_nats"});
    EXPECT_EQ(logits["top_ids"].size(), 7u);
    expect_keys(run_json({"generate", path(model), "--prompt", "a", "-n", "3"}), {"text", "ids", "tokens_per_s"});
    for (const char* mode : {"disjoint", "sliding", "half"}) {
      const json ppl = run_json({"perplexity", path(model), path("text.txt"), "--mode", mode, "--window", "32"});
      expect_keys(
          ppl, {"perplexity", "nll_nats", "bits_per_byte", "tokens_scored", "mode", "window", "bos", "tokens_per_s"});
      EXPECT_EQ(ppl["mode"], mode);
      EXPECT_EQ(ppl["window"], 32);
      EXPECT_EQ(ppl["bos"], std::string(model) == "gemma3");
      EXPECT_GT(ppl["bits_per_byte"], 0);
    }
    const json maps =
        run_json({"capture", path(model), "--text", "a b c", "--layers", "0,2", "--heads", "1", "-o", own("m")});
    expect_keys(maps, {"layers", "heads", "tokens", "bytes"});
    EXPECT_EQ(maps["layers"], json({0, 2}));
    EXPECT_EQ(maps["heads"], json({1}));
    EXPECT_EQ(maps["bytes"], std::filesystem::file_size(own("m")));
    EXPECT_EQ(run_json({"export", path(model), "-o", own(std::string(model) + ".gguf")})["kind"], "gguf");
  }
}

TEST_F(CliCommands, JsonGoesToAFileBesideTheText) {
  const RunResult result = run_program({"logits", path("llama"), "--text", "a b", "--json", own("r.json")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("mean NLL"), std::string::npos);
  expect_keys(json::parse(read_file(own("r.json"))), {"ids", "top_ids"});
  EXPECT_EQ(run_program({"logits", path("llama"), "--text", "a", "--json", own("none/r.json")}).status, 3);
}

TEST_F(CliCommands, BosExactlyOnceAndControlTokensOnlyIfAsked) {
  const auto ids = [](const json& result) { return result["ids"].get<std::vector<int32_t>>(); };
  const auto bos_count = [&](std::vector<std::string> arguments) {
    const auto got = ids(run_json(std::move(arguments)));
    EXPECT_EQ(got.front(), 1);
    return std::count(got.begin(), got.end(), 1);
  };
  for (const char* command : {"tokenize", "logits"}) {
    EXPECT_EQ(bos_count({command, path("gemma3"), "--text", "the sea"}), 1);
    EXPECT_EQ(bos_count({command, path("gemma3"), "--text", "<s>the sea"}), 1);  // text: letters, not the token
    EXPECT_EQ(bos_count({command, path("gemma3"), "--special", "--text", "<s>the sea"}), 1);
    EXPECT_EQ(ids(run_json({command, path("gemma3"), "--special", "--text", "<s>the sea"})),
              ids(run_json({command, path("gemma3"), "--text", "the sea"})));
    EXPECT_GT(ids(run_json({command, path("gemma3"), "--text", "<s>the sea"})).size(),
              ids(run_json({command, path("gemma3"), "--text", "the sea"})).size());
    // No BOS where the file adds none, and a control token's name only with --special.
    EXPECT_EQ(ids(run_json({command, path("llama"), "--special", "--text", "<|im_start|>a"})).size(), 2u);
    EXPECT_GT(ids(run_json({command, path("llama"), "--text", "<|im_start|>a"})).size(), 3u);
  }
  EXPECT_EQ(ids(run_json({"logits", path("gemma3"), "--ids", "5, 6,7"})), (std::vector<int32_t>{5, 6, 7}));
}

TEST_F(CliCommands, IdsNeedNoTokenizer) {
  const Golden golden = read_golden(tiny("llama_grouped"));
  std::string list;
  for (const int32_t id : golden.ids) list.append(std::to_string(id)).append(",");
  for (const std::string& file : {golden.folder.string(), (golden.folder / "model.gguf").string()}) {
    const json result = run_json({"logits", file, "--ids", list, "--dtype", "f32"});
    EXPECT_NEAR(result["nll_nats"].get<double>(), golden.mean_nll, 1e-4) << file;
    EXPECT_EQ(run_json({"capture", file, "--ids", "1,2,3", "-o", own("m")})["tokens"], 3);
  }
  expect_failure({"logits", golden.folder.string(), "--text", "a"}, 3, {"tokenizer"});
  EXPECT_EQ(run_program({"logits", (golden.folder / "model.gguf").string(), "--text", "a"}).status, 4);
  EXPECT_TRUE(run_json({"logits", golden.folder.string(), "--ids", "4"})["nll_nats"].is_null());
}

TEST_F(CliCommands, GenerateFollowsTheLikeliestAndStopsAtTheEnd) {
  TinyModel chain;
  chain.chain = true;  // token t is followed by t + 1; 2 ends the text
  write_tiny_model(own_ / "chain", chain);
  const json one = run_json({"tokenize", own("chain"), "--text", "a"});
  const int32_t a = one["ids"][0];
  const json text = run_json({"generate", own("chain"), "--prompt", "a", "-n", "4"});
  EXPECT_EQ(text["ids"], json({a + 1, a + 2, a + 3, a + 4}));
  EXPECT_EQ(text["prompt_ids"], one["ids"]);
  const json ended = run_json({"generate", own("chain"), "--special", "--prompt", "<|endoftext|>", "-n", "9"});
  EXPECT_EQ(ended["ids"], json({1}));
  EXPECT_EQ(
      run_json({"generate", own("chain"), "--special", "--prompt", "<|endoftext|>", "-n", "9", "--ignore-stops"})["ids"]
          .size(),
      9u);
  const RunResult plain = run_program({"generate", own("chain"), "--prompt", "a", "-n", "4"});
  EXPECT_EQ(plain.out, std::string("a").append(text["text"].get<std::string>()).append("\n"));
}

TEST_F(CliCommands, GenerateKeepsTheBlankAfterThePrompt) {
  // llama_like drops a blank at the very beginning of a text, and only there.
  TinyModel chain{"llama", "llama_like", true, {}};
  write_tiny_model(own_ / "chain", chain);
  const json tokenizer = json::parse(read_file(own_ / "chain/tokenizer.json"));
  int32_t word = -1;
  for (const auto& [piece, id] : tokenizer["model"]["vocab"].items()) {
    if (piece.starts_with("\u2581t") && id > 300) word = id;
  }
  ASSERT_GT(word, 0);
  // The prompt whose last token is the one before the word.
  for (const auto& [piece, id] : tokenizer["model"]["vocab"].items()) {
    if (id != word - 1) continue;
    const std::string prompt = piece.starts_with("\u2581") ? piece.substr(3) : piece;
    const json ids = run_json({"tokenize", own("chain"), "--text", prompt})["ids"];
    ASSERT_EQ(ids.back(), word - 1) << prompt;
    const std::string text = run_json({"generate", own("chain"), "--prompt", prompt, "-n", "1"})["text"];
    EXPECT_EQ(text.substr(0, 2), " t");
  }
}

TEST_F(CliCommands, GenerateRepeatsBySeed) {
  const auto text = [&](const char* seed, const char* top_p) {
    return run_json({"generate", path("llama"), "--prompt", "the", "-n", "12", "--temperature", "1.5", "--ignore-stops",
                     "--seed", seed, "--top-p", top_p})["ids"];
  };
  EXPECT_EQ(text("7", "1"), text("7", "1"));
  EXPECT_NE(text("7", "1"), text("8", "1"));
  const json greedy = run_json({"generate", path("llama"), "--prompt", "the", "-n", "12", "--ignore-stops"})["ids"];
  EXPECT_EQ(text("7", "0.000001"), greedy);
}

TEST_F(CliCommands, PerplexityIsThatOfLogitsOfEachWindow) {
  const json result = run_json({"perplexity", path("gemma3"), path("text.txt"), "--window", "32", "--dtype", "f32"});
  const auto ids = run_json({"tokenize", path("gemma3"), path("text.txt")})["ids"].get<std::vector<int32_t>>();
  double total = 0;
  size_t scored = 0;
  for (size_t first = 1; first < ids.size() && first < 100; first += 31) {
    std::string list = "1";
    const size_t count = std::min<size_t>(31, ids.size() - first);
    for (size_t i = 0; i < count; ++i) list.append(",").append(std::to_string(ids[first + i]));
    const double nll = run_json({"logits", path("gemma3"), "--ids", list, "--dtype", "f32"})["nll_nats"];
    EXPECT_NEAR(result["window_nll_nats"][(first - 1) / 31].get<double>(), nll, 1e-5);
    total += nll * static_cast<double>(count);
    scored += count;
  }
  EXPECT_EQ(result["tokens_scored"], ids.size() - 1);
  EXPECT_GT(total / static_cast<double>(scored), 0);
  EXPECT_NEAR(std::exp(result["nll_nats"].get<double>()), result["perplexity"].get<double>(),
              1e-6 * result["perplexity"].get<double>());
}

}  // namespace
}  // namespace unchain::test
