// Speed of a model: prefill (the logits of the last position of a prompt) and decoding (one token after the other).
//   model_bench MODEL [--prefill 512] [--decode 64] [--repeats 5] [--dtype f32|bf16] [--threads 0] [--json FILE|-]
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/check.h"
#include "base/file.h"
#include "bench.h"
#include "model/context.h"
#include "model/model_file.h"

namespace {

using namespace unchain;

struct Samples {
  std::vector<double> prefill_tokens_per_s, decode_tokens_per_s;
};

Samples measure(const std::shared_ptr<const model::Transformer>& model, int64_t prefill, int64_t decode, int repeats) {
  const int64_t vocabulary = model->config.vocabulary;
  std::vector<int32_t> prompt(static_cast<size_t>(std::max<int64_t>(prefill, 1)));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(vocabulary));
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  const Matrix last(logits.data(), 1, vocabulary);
  model::Context context(model, static_cast<int64_t>(prompt.size()) + decode);
  Samples samples;
  for (int i = 0; i < repeats + 1; ++i) {
    context.truncate(0);
    const double read = bench::time_once([&] {
      context.extend(prompt, 1);
      context.logits(last, 0, 1);
    });
    // Decoding starts from an empty context, as llama-bench does.
    context.truncate(0);
    const double wrote = bench::time_once([&] {
      for (int64_t t = 0; t < decode; ++t) {
        context.extend(std::span(prompt).subspan(static_cast<size_t>(t) % prompt.size(), 1), 1);
        context.logits(last, 0, 1);
      }
    });
    if (i == 0) continue;  // warm-up
    samples.prefill_tokens_per_s.push_back(static_cast<double>(prefill) / read);
    if (decode > 0) samples.decode_tokens_per_s.push_back(static_cast<double>(decode) / wrote);
  }
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of a model");
  std::string path, json, dtype = "f32";
  int64_t prefill = 512, decode = 64;
  int repeats = 5, thread_count = 0;
  app.add_option("model", path)->required();
  app.add_option("--prefill", prefill)->check(CLI::Range(1, 1 << 20));
  app.add_option("--decode", decode)->check(CLI::Range(0, 1 << 20));
  app.add_option("--repeats", repeats)->check(CLI::Range(1, 1000));
  app.add_option("--dtype", dtype);
  app.add_option("--threads", thread_count);
  app.add_option("--json", json);
  CLI11_PARSE(app, argc, argv);
  try {
    set_threads(thread_count);
    const auto model = model::load(path, parse_dtype(dtype));
    const Samples samples = measure(model, prefill, decode, repeats);
    const nlohmann::json result = {{"machine", bench::describe_machine()},
                                   {"isa", simd::target_name()},
                                   {"dtype", dtype},
                                   {"threads", threads()},
                                   {"prefill", prefill},
                                   {"decode", decode},
                                   {"prefill_tokens_per_s", samples.prefill_tokens_per_s},
                                   {"decode_tokens_per_s", samples.decode_tokens_per_s}};
    const std::string text = result.dump(1) + "\n";
    if (json.empty() || json == "-") std::fputs(text.c_str(), stdout);
    if (!json.empty() && json != "-") write_text(json, text);
  } catch (const Error& error) {
    std::fprintf(stderr, "model_bench: %s\n", error.what());
    return 1;
  }
}
