#include "eval/choice.h"

#include <cmath>

#include "base/check.h"
#include "cli/text_source.h"

namespace unchain::cli {
namespace {

struct Options {
  std::string file, form = "plain";
  int64_t max_items = 0;
  bool form_given = false, items = false;
};

std::string show(const eval::Proportion& proportion) {
  const auto interval = eval::wilson_interval(proportion);
  return fmt::format("{:.4f}  {} of {}, 95 % interval {:.4f} to {:.4f}", proportion.value(), proportion.right,
                     proportion.asked, interval.low, interval.high);
}

nlohmann::json items_json(const eval::ChoiceResult& result, bool last_words) {
  nlohmann::json items = nlohmann::json::array();
  for (const eval::ItemResult& item : result.items) {
    nlohmann::json options = nlohmann::json::array();
    for (const eval::OptionScore& option : item.options) {
      options.push_back({{"log_likelihood", option.log_likelihood},
                         {"log_likelihood_per_byte", option.log_likelihood / static_cast<double>(option.bytes)},
                         {"tokens", option.tokens},
                         {"bytes", option.bytes}});
    }
    nlohmann::json& out = items.emplace_back(nlohmann::json{{"id", item.id}, {"options", options}});
    if (last_words) {
      out["likeliest"] = item.options[0].likeliest;
    } else {
      out.update({{"answer", item.answer}, {"chosen", item.chosen}, {"chosen_per_byte", item.chosen_per_byte}});
    }
  }
  return items;
}

void write_proportion(nlohmann::json& out, const std::string& name, const eval::Proportion& proportion) {
  const auto interval = eval::wilson_interval(proportion);
  const bool any = proportion.asked > 0;
  out[name] = any ? nlohmann::json(proportion.value()) : nlohmann::json();
  out[name + "_low"] = any ? nlohmann::json(interval.low) : nlohmann::json();
  out[name + "_high"] = any ? nlohmann::json(interval.high) : nlohmann::json();
}

void print(const Common& common, const Options& options, const eval::ChoiceResult& r, bool last_words, size_t merged,
           DType dtype) {
  const double rate = static_cast<double>(r.tokens_read) / r.seconds;
  nlohmann::json result = describe_run(common, dtype);
  write_proportion(result, "accuracy", r.accuracy);
  write_proportion(result, "accuracy_per_byte", r.per_byte);
  result.update({{"n", r.items.size()},
                 {"kind", last_words ? "last_words" : "choices"},
                 {"template", last_words ? nlohmann::json() : nlohmann::json(options.form)},
                 {"chance", last_words ? nlohmann::json() : nlohmann::json(r.chance)},
                 {"answer_nll_nats", r.answer_nll},
                 {"merged_items", merged},
                 {"tokens_per_s", rate}});
  if (options.items) result["items"] = items_json(r, last_words);
  std::string text = fmt::format("accuracy           {}\n", show(r.accuracy));
  if (last_words) {
    result["perplexity"] = std::exp(r.answer_nll);
    text += fmt::format("perplexity         {:.4f} of the last word\n", std::exp(r.answer_nll));
  } else {
    text += fmt::format("accuracy per byte  {}\nchance             {:.4f}\n", show(r.per_byte), r.chance);
  }
  text += fmt::format("answers' nll       {:.4f} nats\nspeed              {:.0f} tokens/s, {}\n", r.answer_nll, rate,
                      info(dtype).name);
  print_result(common, result, text);
}

void run(const Common& common, const Options& options) {
  prepare(common);
  const eval::ChoiceTemplate form = eval::parse_choice_template(options.form);
  const eval::ChoiceSet set = eval::read_choices(read_text_file(options.file), options.file, options.max_items);
  if (set.last_words && options.form_given)
    fail(ErrorCode::usage, "--template: is of choices; the lines of {} are texts whose last word is foretold",
         options.file);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto tokenizer = open_tokenizer(file, common, "choice needs one");
  const auto items = eval::encode_choices(*tokenizer, set, form, options.file);
  size_t longest = 0, longest_at = 0, merged = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    merged += items[i].merged ? 1 : 0;
    for (const eval::OptionTokens& option : items[i].options) {
      if (option.ids.size() <= longest) continue;
      longest = option.ids.size();
      longest_at = i;
    }
  }
  warn_beyond_context(file, static_cast<int64_t>(longest),
                      fmt::format("{}: line {}: {} tokens", options.file, set.items[longest_at].line, longest));
  if (merged > 0)
    std::fprintf(stderr, "note: in %zu of %zu items a token spans the end of the context and the option\n", merged,
                 items.size());
  const auto model = model::load(file, common.type());
  Progress progress("choice", "tokens", 1);
  const auto result =
      eval::score_choices(model, items, set.last_words, [&](size_t done, size_t total) { progress.show(done, total); });
  print(common, options, result, set.last_words, merged, model->dtype);
}

}  // namespace

void add_choice(CLI::App& app) {
  auto* command =
      app.add_subcommand("choice", "which of several answers a model finds likeliest, or the last words of texts");
  auto common = std::make_shared<Common>();
  auto options = std::make_shared<Options>();
  add_model(*command, *common);
  command
      ->add_option("file", options->file,
                   R"(JSON lines {"context", "choices": [texts], "answer": index}, or {"text"} for last words)")
      ->required()
      ->type_name("FILE");
  CLI::Option* form = command
                          ->add_option("--template", options->form,
                                       "plain: context and choice with a blank between; question: 'Question: …' and "
                                       "'Answer: …' on two lines")
                          ->default_val("plain")
                          ->check(CLI::IsMember({"plain", "question"}))
                          ->group("Items");
  command->add_option("--max-items", options->max_items, "score only the first so many; 0: all")
      ->default_val(0)
      ->group("Items");
  add_pretokenizer(*command, *common, "Items");
  add_compute(*command, *common);
  command->add_flag("--items", options->items, "each item's figures in the JSON as well")->group("Output");
  add_output(*command, *common);
  command->callback([common, options, form] {
    options->form_given = form->count() > 0;
    run(*common, *options);
  });
}

}  // namespace unchain::cli
