// needle and choice through the program: keys, files, warnings, errors.
#include "cli/program_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "support/pretrained.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class CliNeedle : public Cli {
 protected:
  std::vector<std::string> command(std::vector<std::string> more, const std::string& model = "llama") const {
    std::vector<std::string> all = {"needle",   path(model), "-o",        own("out"), "--form",    "pair",
                                    "--depths", "0,100",     "--samples", "2",        "--needles", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(CliNeedle, WritesResultsAndPage) {
  const json result = run_json(command({"--lengths", "60,80", "--queries", "2"}));
  expect_keys(result, {"schema", "command", "version", "settings", "model", "accuracy", "accuracy_low", "accuracy_high",
                       "chance", "cells", "attention_on_answer", "layers", "tokens_per_s"});
  EXPECT_EQ(json::parse(read_file(own("out") + "/results.json")), result);
  EXPECT_NE(read_file(own("out") + "/report.html").find("unchain needle"), std::string::npos);
  EXPECT_EQ(result["chance"], 0.5);
  EXPECT_EQ(result["asked"], 16);
  EXPECT_EQ(result["settings"]["depths"], json({0, 1}));
  ASSERT_EQ(result["cells"].size(), 4u);
  int64_t right = 0;
  double attention = 0;
  for (const json& cell : result["cells"]) {
    expect_keys(cell, {"length", "depth", "real_depth", "prompt_tokens", "asked", "right", "accuracy", "low", "high",
                       "first", "attention_on_answer", "samples"});
    EXPECT_EQ(cell["asked"], 4);
    EXPECT_EQ(cell["first"]["asked"], 2);
    EXPECT_NEAR(cell["real_depth"].get<double>(), cell["depth"].get<double>(), 0.01);
    EXPECT_LT(cell["prompt_tokens"], cell["length"]);
    right += cell["right"].get<int64_t>();
    for (const json& sample : cell["samples"]) {
      for (const json& answer : sample["answers"]) {
        expect_keys(answer, {"city", "number", "text", "right", "attention_on_answer"});
        attention += answer["attention_on_answer"].get<double>() / 16;
      }
    }
  }
  EXPECT_EQ(result["right"], right);
  EXPECT_NEAR(result["attention_on_answer"]["mean"].get<double>(), attention, 1e-9);
  ASSERT_EQ(result["layers"].size(), 3u);
  double heads = 0;
  for (const json& layer : result["layers"]) {
    ASSERT_EQ(layer["heads"].size(), 4u);
    for (const json& head : layer["heads"]) heads += head["attention_on_answer"]["mean"].get<double>() / 12;
  }
  EXPECT_NEAR(heads, attention, 1e-9);
}

// The extras inside a page.
json page_extras(const std::filesystem::path& html, const std::filesystem::path& folder) {
  const std::string page = read_file(html), open = "id=\"data\">";
  const size_t from = page.find(open) + open.size();
  write_file(folder / "data", page.substr(from, page.find('<', from) - from));
  const std::string unpack = fmt::format("base64 -d '{0}/data' | gunzip >'{0}/data.json'", folder.string());
  EXPECT_EQ(std::system(unpack.c_str()), 0);
  return json::parse(read_file(folder / "data.json")).at("extras");
}

// Checks the row of a page: its prompt, its form, and that its shares are those of results.json.
void expect_row(const json& row, const json& results, bool noise) {
  const auto cell = std::find_if(results["cells"].begin(), results["cells"].end(), [&](const json& c) {
    return c["length"] == row["length"] && c["depth"] == row["depth"];
  });
  ASSERT_NE(cell, results["cells"].end());
  const json& sample = (*cell)["samples"][row["sample"].get<size_t>()];
  const json& answer = sample["answers"][0];
  EXPECT_EQ(row["city"], answer["city"]);
  EXPECT_EQ(row["answer"], answer["number"]);
  EXPECT_EQ(row["text"], answer["text"]);
  EXPECT_EQ(row["right"], answer["right"]);
  EXPECT_GE(row["tokens"].size(), sample["prompt_tokens"]);
  const size_t from = row["number"][0], to = row["number"][1];
  std::string number;
  for (size_t j = from; j < to; ++j) number += row["tokens"][j].get<std::string>();
  EXPECT_NE(number.find(answer["number"].get<std::string>()), std::string::npos) << number;
  ASSERT_EQ(row["layers"].size(), results["layers"].size());
  double share = 0;
  for (size_t l = 0; l < row["layers"].size(); ++l) {
    const json& layer = row["layers"][l];
    const size_t heads = results["layers"][l]["heads"].size();
    EXPECT_EQ(layer["layer"], l);
    EXPECT_EQ(layer["noise"].is_null(), !noise);
    EXPECT_EQ(layer["lambda"].is_null(), !noise);
    ASSERT_EQ(layer["positive"].size(), heads);
    for (size_t h = 0; h < heads; ++h) {
      double positive = 0, total = 0, on_answer = 0;
      ASSERT_EQ(layer["positive"][h].size(), row["tokens"].size());
      for (size_t j = 0; j < row["tokens"].size(); ++j) {
        double p = layer["positive"][h][j];
        positive += p;
        if (noise) p -= layer["lambda"][h].get<double>() * layer["noise"][h][j].get<double>();
        total += std::abs(p);
        if (j >= from && j < to) on_answer += std::abs(p);
      }
      EXPECT_NEAR(positive, 1, 1e-3);
      share += on_answer / total / static_cast<double>(heads * row["layers"].size());
    }
  }
  EXPECT_NEAR(share, answer["attention_on_answer"].get<double>(), 2e-3);
}

TEST_F(CliNeedle, ThePageHasTheRowThatPredictsTheAnswer) {
  const json plain = run_json(command({"--lengths", "60"}));
  expect_row(page_extras(own("out") + "/report.html", own_.path())["needle_row"], plain, false);
  const std::string shipped = std::string(UNCHAIN_SOURCE_DIR) + "/models/diff_v2";
  const json results = run_json({"needle", shipped, "-o", own("shipped"), "--form", "pair", "--lengths", "64",
                                 "--depths", "0,50,100", "--samples", "2"});
  const json row = page_extras(own("shipped") + "/report.html", own_.path())["needle_row"];
  expect_row(row, results, true);
  EXPECT_EQ(row["right"], results["right"] > 0);
  EXPECT_EQ(row["tokens"][0], "<s>");
}

TEST_F(CliNeedle, TheSameSeedGivesTheSame) {
  const auto cells = [&](const char* seed) { return run_json(command({"--lengths", "60", "--seed", seed}))["cells"]; };
  const json first = cells("3");
  EXPECT_EQ(cells("3"), first);
  EXPECT_NE(cells("4"), first);
}

// The model's context is 256 tokens.
TEST_F(CliNeedle, WarnsBeyondTheContext) {
  for (const auto& [length, warns] : {std::pair{"255", false}, std::pair{"256", false}, std::pair{"257", true}}) {
    const RunResult result = run_program(command({"--lengths", length}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err.find("--lengths 257: beyond the 256 positions") != std::string::npos, warns) << result.err;
  }
}

TEST_F(CliNeedle, TakesAnyHaystack) {
  std::string words;
  for (int i = 0; i < 400; ++i) words += "word ";
  for (const std::string& text :
       {words, std::string(2000, 'x'), std::string("Numbers 12345 and 99.\nMore 7 lines.\n")}) {
    write_file(own("haystack.txt"), text);
    EXPECT_EQ(run_json(command({"--lengths", "80", "--haystack", own("haystack.txt")}, "gemma3"))["asked"], 4);
  }
  write_file(own("haystack.txt"), " \n ");
  expect_failure(command({"--haystack", own("haystack.txt")}), 3, {"haystack.txt"});
  expect_failure(command({"--haystack", own("none.txt")}), 3, {"none.txt"});
}

TEST_F(CliNeedle, WrongOptionsAreErrors) {
  for (const auto& [options, part] : std::initializer_list<std::pair<std::vector<std::string>, const char*>>{
           {{"--queries", "3"}, "3 of 2 needles"},
           {{"--lengths", "12"}, "length 12"},
           {{"--lengths", "0"}, "length 0"},
           {{"--lengths", "60,60"}, "lengths 60 is given twice"},
           {{"--needles", "5000"}, "needles"},
           {{"--depths", "101"}, "--depths 101"},
           {{"--depths", "-1"}, "--depths -1"},
           {{"--depths", "nan"}, "--depths nan"}}) {
    std::vector<std::string> all = {"needle", path("llama"), "-o", own("out"), "--needles", "2"};
    if (options[0] == "--needles") all.resize(4);
    all.insert(all.end(), options.begin(), options.end());
    expect_failure(all, 2, {part});
    EXPECT_FALSE(std::filesystem::exists(own("out"))) << part;
  }
  for (const auto& options : std::vector<std::vector<std::string>>{
           {"--form", "poem"}, {"--samples", "0"}, {"--needles", "0"}, {"--lengths", "many"}, {"--dtype", "f64"}})
    EXPECT_EQ(run_program(command(options)).status, 2) << options[0];
}

class CliChoice : public Cli {
 protected:
  std::string lines(const std::string& text) const {
    write_file(own("items.jsonl"), text);
    return own("items.jsonl");
  }
  const std::string item_ = R"({"id": "a", "context": "The river", "choices": ["meets the sea", "sings"], "answer": 1})"
                            "\n";
};

TEST_F(CliChoice, GivesItsKeys) {
  for (const char* form : {"plain", "question"}) {
    const json result = run_json({"choice", path("gemma3"), lines(item_ + item_), "--template", form, "--items"});
    expect_keys(result, {"accuracy", "accuracy_low", "accuracy_high", "accuracy_per_byte", "accuracy_per_byte_low",
                         "accuracy_per_byte_high", "n", "chance", "answer_nll_nats", "template", "tokens_per_s"});
    EXPECT_EQ(result["n"], 2);
    EXPECT_EQ(result["chance"], 0.5);
    ASSERT_EQ(result["items"].size(), 2u);
    const json& item = result["items"][0];
    EXPECT_EQ(item["options"].size(), 2u);
    EXPECT_EQ(item["options"], result["items"][1]["options"]);
    EXPECT_EQ(item["chosen"] == 1, result["accuracy"] == 1.0);
    const json& option = item["options"][0];
    EXPECT_NEAR(option["log_likelihood_per_byte"].get<double>(), option["log_likelihood"].get<double>() / 13, 1e-12);
  }
  const json one = run_json({"choice", path("llama"), lines(item_ + "{no"), "--max-items", "1"});
  EXPECT_EQ(one["n"], 1);
  EXPECT_FALSE(one.contains("items"));
}

TEST_F(CliChoice, LastWords) {
  const json result =
      run_json({"choice", path("llama"), lines("{\"text\": \"The river meets the sea\"}\n"), "--items"});
  EXPECT_EQ(result["kind"], "last_words");
  EXPECT_TRUE(result["accuracy_per_byte"].is_null());
  EXPECT_NEAR(std::log(result["perplexity"].get<double>()), result["answer_nll_nats"].get<double>(), 1e-9);
  expect_failure({"choice", path("llama"), own("items.jsonl"), "--template", "plain"}, 2, {"--template"});
}

TEST_F(CliChoice, WarnsBeyondTheContext) {
  std::string longer = item_;
  longer.replace(longer.find("river"), 5, std::string(600, 'z'));
  const RunResult result = run_program({"choice", path("llama"), lines(item_ + longer)});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("items.jsonl: line 2"), std::string::npos) << result.err;
}

TEST_F(CliChoice, BadInputIsAnError) {
  expect_failure({"choice", path("llama"), lines(item_ + "{no")}, 3, {"items.jsonl: line 2"});
  expect_failure({"choice", path("llama"), lines("")}, 3, {"is empty"});
  expect_failure({"choice", path("llama"), own("none.jsonl")}, 3, {"none.jsonl"});
  expect_failure({"choice", path("llama"), lines(item_), "--max-items", "-1"}, 2, {"--max-items"});
  EXPECT_EQ(run_program({"choice", path("llama"), own("items.jsonl"), "--template", "poem"}).status, 2);
}

class PretrainedEvaluation : public Pretrained {};

// Two implementations, f32: log-likelihoods agree far better than the 0.01 that would change no verdict.
TEST_F(PretrainedEvaluation, ChoicesAsTransformersScoresThem) {
  const std::filesystem::path folder = std::filesystem::path(UNCHAIN_TEST_DATA) / "choice";
  const json golden = json::parse(read_file(folder / "golden.json"));
  for (const std::string form : {"plain", "question", "last_words"}) {
    const bool words = form == "last_words";
    std::vector<std::string> command = {
        "choice",  smollm2().string(), (folder / (words ? "last_words.jsonl" : "choices.jsonl")).string(),
        "--items", "--dtype",          "f32"};
    if (!words) command.insert(command.end(), {"--template", form});
    const json result = run_json(command);
    ASSERT_EQ(result["items"].size(), golden.at(form).size());
    int64_t right = 0;
    for (size_t i = 0; i < golden[form].size(); ++i) {
      SCOPED_TRACE(form + " " + std::to_string(i));
      const json& expected = golden[form][i]["options"];
      const json& options = result["items"][i]["options"];
      ASSERT_EQ(options.size(), expected.size());
      for (size_t c = 0; c < expected.size(); ++c) {
        EXPECT_EQ(options[c]["tokens"], expected[c]["tokens"]);
        EXPECT_NEAR(options[c]["log_likelihood"].get<double>(), expected[c]["log_likelihood"].get<double>(), 1e-3);
      }
      if (!words) continue;
      EXPECT_EQ(result["items"][i]["likeliest"], expected[0]["likeliest"]);
      right += expected[0]["likeliest"].get<bool>();
    }
    if (words) {
      EXPECT_EQ(result["accuracy"], static_cast<double>(right) / 8);
    }
  }
}

// 256 tokens with four needles are easy for these models: most of the answers are right, and some head looks there.
TEST_F(PretrainedEvaluation, NeedlesAreFound) {
  const TemporaryFolder out;
  for (const auto& model : {smollm2(), gemma3()}) {
    const json result = run_json({"needle", model.string(), "-o", out.path().string(), "--lengths", "256", "--depths",
                                  "0,50", "--samples", "3", "--queries", "2"});
    EXPECT_GE(result["right"], 6) << result["cells"].dump();
    double strongest = 0;
    for (const json& layer : result["layers"]) {
      for (const json& head : layer["heads"])
        strongest = std::max(strongest, head["attention_on_answer"]["mean"].get<double>());
    }
    EXPECT_GT(strongest, 0.3);
  }
}

}  // namespace
}  // namespace unchain::test
