// Reading choice lines and turning them into tokens.
#include <algorithm>

#include "base/check.h"
#include "eval/choice.h"
#include "formats/json.h"

namespace unchain::eval {
namespace {

using nlohmann::json;

constexpr std::string_view kBlanks = " \n\t\r";

// Without the blanks at its end.
std::string_view trimmed(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

const std::string& text_of(const json& object, const char* key, const std::string& where) {
  if (!object.contains(key) || !object[key].is_string())
    fail(ErrorCode::format, "{}: has no string \"{}\", expected \"context\", \"choices\" and \"answer\", or \"text\"",
         where, key);
  return object[key].get_ref<const std::string&>();
}

void read_choice(const json& object, const std::string& where, ChoiceItem& item) {
  item.context = text_of(object, "context", where);
  if (!object.contains("choices") || !object["choices"].is_array())
    fail(ErrorCode::format, "{}: has no list \"choices\"", where);
  for (const json& choice : object["choices"]) {
    const size_t number = item.choices.size();
    if (!choice.is_string()) fail(ErrorCode::format, "{}: choice {} is no text", where, number);
    item.choices.push_back(choice.get<std::string>());
    if (trimmed(item.choices.back()).empty()) fail(ErrorCode::format, "{}: choice {} is empty", where, number);
  }
  if (item.choices.size() < 2)
    fail(ErrorCode::format, "{}: number of choices: {}, expected 2 or more", where, item.choices.size());
  const json answer = object.value("answer", json());
  if (!answer.is_number_integer()) fail(ErrorCode::format, "{}: has no whole number \"answer\"", where);
  const bool known = answer.is_number_unsigned() ? answer.get<uint64_t>() < item.choices.size() : false;
  if (!known)
    fail(ErrorCode::format, "{}: answer {}, expected 0 to {}, the index of a choice", where, answer.dump(),
         item.choices.size() - 1);
  item.answer = answer.get<size_t>();
}

void read_last_word(const json& object, const std::string& where, ChoiceItem& item) {
  const std::string_view text = trimmed(text_of(object, "text", where));
  const size_t blank = text.find_last_of(kBlanks);
  item.context = blank == std::string_view::npos ? "" : trimmed(text.substr(0, blank));
  if (item.context.empty())
    fail(ErrorCode::format, "{}: the text has fewer than two words, so there is no last word to foretell", where);
  item.choices.emplace_back(text.substr(item.context.size()));
}

std::string question_before(ChoiceTemplate form, const ChoiceItem& item, bool last_word) {
  if (last_word || form == ChoiceTemplate::plain) return item.context;
  return "Question: " + item.context + "\nAnswer:";
}

ChoiceTokens encode_item(const tokenizer::Tokenizer& tokenizer, const ChoiceItem& item, ChoiceTemplate form,
                         bool last_word, const std::string& where) {
  ChoiceTokens result;
  result.id = item.id;
  result.answer = item.answer;
  const std::string before = question_before(form, item, last_word);
  const std::vector<int32_t> context = tokenizer.encode_with_bos(trimmed(before));
  if (context.empty())
    fail(ErrorCode::format, "{}: the context is empty and the model adds no BOS, so nothing predicts the option",
         where);
  for (const std::string& choice : item.choices) {
    OptionTokens& option = result.options.emplace_back();
    option.ids = tokenizer.encode_with_bos(fmt::format("{}{}{}", before, last_word ? "" : " ", choice));
    option.first = static_cast<int64_t>(context.size());
    option.bytes = last_word ? choice.size() - choice.find_first_not_of(kBlanks) : choice.size();
    if (option.ids.size() <= context.size())
      fail(ErrorCode::format, "{}: choice {} adds no token to the context's {}", where, result.options.size() - 1,
           context.size());
    result.merged |= !std::equal(context.begin(), context.end(), option.ids.begin());
  }
  const std::vector<int32_t>& ids = result.options[0].ids;
  auto end = ids.begin() + static_cast<int64_t>(context.size()) - 1;
  for (const OptionTokens& option : result.options) end = std::mismatch(ids.begin(), end, option.ids.begin()).first;
  result.shared = end - ids.begin();
  return result;
}

}  // namespace

ChoiceSet read_choices(std::string_view text, const std::string& name, int64_t max_items) {
  if (max_items < 0) fail(ErrorCode::usage, "--max-items {}: expected 0 (all) or more", max_items);
  ChoiceSet set;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (trimmed(line).empty()) continue;
    const std::string where = fmt::format("{}: line {}", name, number);
    const json object = formats::parse_json(line, where);
    if (!object.is_object()) fail(ErrorCode::format, "{}: is no JSON object", where);
    const bool last_word = object.contains("text");
    if (set.items.empty()) set.last_words = last_word;
    if (set.last_words != last_word)
      fail(ErrorCode::format, "{}: {} among {}; give two files", where, last_word ? "a last word" : "a choice",
           set.last_words ? "last words" : "choices");
    ChoiceItem item;
    item.line = number;
    item.id =
        object.contains("id") && object["id"].is_string() ? object["id"].get<std::string>() : std::to_string(number);
    last_word ? read_last_word(object, where, item) : read_choice(object, where, item);
    set.items.push_back(std::move(item));
    if (static_cast<int64_t>(set.items.size()) == max_items) break;
  }
  if (set.items.empty()) fail(ErrorCode::format, "{}: has no lines, expected one JSON object a line", name);
  return set;
}

ChoiceTemplate parse_choice_template(std::string_view name) {
  if (name == "plain") return ChoiceTemplate::plain;
  if (name == "question") return ChoiceTemplate::question;
  fail(ErrorCode::usage, "--template '{}' is unknown, expected plain or question", name);
}

std::vector<ChoiceTokens> encode_choices(const tokenizer::Tokenizer& tokenizer, const ChoiceSet& set,
                                         ChoiceTemplate form, const std::string& name) {
  std::vector<ChoiceTokens> result;
  result.reserve(set.items.size());
  for (const ChoiceItem& item : set.items)
    result.push_back(encode_item(tokenizer, item, form, set.last_words, fmt::format("{}: line {}", name, item.line)));
  return result;
}

}  // namespace unchain::eval
