#include "text/needle_prompts.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::text {
namespace {

constexpr uint64_t kStream = uint64_t{3} << 40;  // of the seed

void check(const NeedlePromptOptions& o) {
  if (o.length < 1 || o.length > (1 << 24))
    fail(ErrorCode::usage, "needle: length {}, expected 1 to {} tokens", o.length, 1 << 24);
  if (o.needles < 1) fail(ErrorCode::usage, "needle: {} needles, expected 1 or more", o.needles);
  if (o.queries < 1 || o.queries > o.needles)
    fail(ErrorCode::usage, "needle: {} of {} needles are to be asked, expected 1 to {}", o.queries, o.needles,
         o.needles);
  if (!(o.depth >= 0 && o.depth <= 1)) fail(ErrorCode::usage, "needle: depth {}, expected 0 to 1", o.depth);
}

// The ids of `text` as they come behind an answer, where the tokenizer puts no blank in front.
std::vector<int32_t> encode_behind(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  const std::string whole = ";" + text;
  std::vector<int32_t> ids = tokenizer.encode(whole);
  const std::vector<size_t> ends = token_ends(tokenizer, whole, ids);
  const auto first = std::find(ends.begin(), ends.end(), size_t{1});
  if (first == ends.end()) return tokenizer.encode(text);  // the ';' is part of a longer piece
  ids.erase(ids.begin(), ids.begin() + (first - ends.begin()) + 1);
  return ids;
}

// The haystack's first units, as far as they have been needed.
class Body {
 public:
  Body(const Haystack& haystack, Rng rng) : run_(haystack, rng) {}
  std::string_view first(size_t units) {
    while (ends_.size() <= units) {
      text_ += run_.next();
      ends_.push_back(text_.size());
    }
    std::string_view body(text_.data(), ends_[units]);
    const size_t last = body.find_last_not_of(" \n\t\r");
    return body.substr(0, last == std::string_view::npos ? 0 : last + 1);
  }

 private:
  Haystack::Run run_;
  std::string text_;
  std::vector<size_t> ends_ = {0};
};

// All that is drawn by chance: needles in the order in which they lie if there is no room between them.
struct Draw {
  std::vector<Needle> needles;
  std::vector<double> places;  // 0 … 1 of the haystack
  std::vector<size_t> asked;   // which, in order
};

Draw draw(const NeedlePromptOptions& o, Rng& rng) {
  Draw result;
  NeedleDrawer drawer(o.form, NeedleSplit::test);
  result.needles = drawer.draw(o.needles, rng);
  for (size_t i = 0; i < o.needles; ++i) result.places.push_back(rng.uniform());
  // The needle drawn first is the first asked; in the list it stands as deep as in the haystack.
  const auto place = static_cast<size_t>(std::lround(o.depth * static_cast<double>(o.needles - 1)));
  result.places[0] = o.depth;
  std::rotate(result.needles.begin(), result.needles.begin() + 1,
              result.needles.begin() + static_cast<long>(place) + 1);
  std::rotate(result.places.begin(), result.places.begin() + 1, result.places.begin() + static_cast<long>(place) + 1);
  result.asked.push_back(place);
  std::vector<size_t> others;
  for (size_t i = 0; i < o.needles; ++i) {
    if (i != place) others.push_back(i);
  }
  for (size_t i = 0; i + 1 < o.queries; ++i) {
    std::swap(others[i], others[i + rng.below(others.size() - i)]);
    result.asked.push_back(others[i]);
  }
  return result;
}

struct Built {
  NeedleText text;  // with the first question behind
  std::vector<int32_t> ids;
};

Built build(const tokenizer::Tokenizer& tokenizer, std::string_view body, const NeedlePromptOptions& o,
            const Draw& drawn) {
  std::vector<size_t> wanted;
  for (const double place : drawn.places)
    wanted.push_back(static_cast<size_t>(place * static_cast<double>(body.size())));
  Built built{insert_needles(body, o.form, drawn.needles, wanted), {}};
  built.text.text += needle_question(o.form, drawn.needles[drawn.asked[0]].city);
  built.ids = tokenizer.encode(built.text.text);
  return built;
}

}  // namespace

NeedlePrompt make_needle_prompt(const tokenizer::Tokenizer& tokenizer, const Haystack& haystack,
                                const NeedlePromptOptions& options, uint64_t sample) {
  check(options);
  Rng rng(options.seed, kStream + sample);
  Body body(haystack, Rng(rng.bits(), kStream));
  const Draw drawn = draw(options, rng);
  NeedlePrompt prompt;
  int64_t room = 0;
  for (const size_t i : drawn.asked) {
    prompt.asked.push_back(drawn.needles[i]);
    const auto tokens =
        static_cast<int64_t>(encode_behind(tokenizer, needle_answer(options.form, drawn.needles[i].number)).size());
    prompt.answer_tokens = std::max(prompt.answer_tokens, tokens + 1);
  }
  for (size_t i = 1; i < drawn.asked.size(); ++i) {
    prompt.questions.push_back(
        encode_behind(tokenizer, needle_question(options.form, drawn.needles[drawn.asked[i]].city)));
    room += static_cast<int64_t>(prompt.questions.back().size());
  }
  room += prompt.answer_tokens * static_cast<int64_t>(options.queries);
  const bool bos = tokenizer.add_bos && tokenizer.bos >= 0;
  const int64_t most = options.length - room - (bos ? 1 : 0);
  const auto with = [&](size_t units) { return build(tokenizer, body.first(units), options, drawn); };
  const auto tokens = [](const Built& built) { return static_cast<int64_t>(built.ids.size()); };
  Built best = with(0);
  if (tokens(best) > most) {
    fail(ErrorCode::usage,
         "needle: length {}: {} needles, {} questions and room for the answers take {} tokens; give fewer or a larger "
         "length",
         options.length, options.needles, options.queries, tokens(best) + options.length - most);
  }
  // Doubled until it is too long, then halved: `low` units fit, `high` do not.
  size_t low = 0, high = 1;
  for (Built next = with(high); tokens(next) <= most; next = with(high)) {
    best = std::move(next);
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    Built next = with(middle);
    const bool fits = tokens(next) <= most;
    (fits ? low : high) = middle;
    if (fits) best = std::move(next);
  }
  const std::vector<size_t> ends = token_ends(tokenizer, best.text.text, best.ids);
  const auto shifted = [&](ByteSpan bytes) {
    const TokenSpan span = tokens_of(bytes, ends);
    return TokenSpan{span.begin + (bos ? 1 : 0), span.end + (bos ? 1 : 0)};
  };
  for (const size_t i : drawn.asked) {
    prompt.needles.push_back(shifted(best.text.needles[i]));
    prompt.cities.push_back(shifted(best.text.cities[i]));
    prompt.numbers.push_back(shifted(best.text.numbers[i]));
  }
  const size_t question = needle_question(options.form, prompt.asked[0].city).size();
  const ByteSpan stack = {0, best.text.text.size() - question};
  const TokenSpan needle = prompt.needles[0], all = shifted(stack);
  const int64_t others = all.end - all.begin - (needle.end - needle.begin);
  prompt.depth = others > 0 ? static_cast<double>(needle.begin - all.begin) / static_cast<double>(others) : 0.0;
  prompt.text = std::move(best.text.text);
  prompt.ids = std::move(best.ids);
  if (bos) prompt.ids.insert(prompt.ids.begin(), tokenizer.bos);
  return prompt;
}

}  // namespace unchain::text
