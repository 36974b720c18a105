#include "text/needle_documents.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace unchain::text {
namespace {

constexpr uint64_t kStream = uint64_t{2} << 40;  // of the run's seed

std::string_view without_blanks_at_end(std::string_view text) {
  const size_t last = text.find_last_not_of(" \n\t\r");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

template <class T>
void shuffle(std::vector<T>& values, Rng& rng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.below(i)]);
}

// Which needles are asked, in order: each one, and as many of them again.
std::vector<size_t> questions(size_t needles, Rng& rng) {
  std::vector<size_t> asked(needles);
  std::iota(asked.begin(), asked.end(), size_t{0});
  for (size_t i = 0; i < needles; ++i) asked.push_back(rng.below(needles));
  shuffle(asked, rng);
  return asked;
}

}  // namespace

NeedleDocuments::NeedleDocuments(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                 const NeedleDocumentOptions& options, int64_t context,
                                 std::shared_ptr<const Haystack> text)
    : tokenizer_(std::move(tokenizer)), options_(options), context_(context), text_(std::move(text)) {
  if (context < 1) fail(ErrorCode::usage, "needles: the context is {}, expected 1 or more", context);
  if (options.count < 1) fail(ErrorCode::usage, "data.needles.count: is {}, expected 1 or more", options.count);
  if (options.filler < 0) fail(ErrorCode::usage, "data.needles.filler: is {}, expected 0 or more", options.filler);
  for (const double part : {options.rise, options.filler_rise}) {
    if (!(part >= 0 && part <= 1)) fail(ErrorCode::usage, "data.needles.rise: is {}, expected 0 to 1", part);
  }
  if (options_.filler == 0) options_.filler = context;
  neutral_rate_ = tokens_per_byte(neutral_);
  if (text_) text_rate_ = tokens_per_byte(*text_);
  // Some drawn ones stand for all: names differ by a token or two.
  Rng rng(options.seed, kStream - 1);
  NeedleDrawer drawer(options.form, NeedleSplit::train);
  const auto count = static_cast<size_t>(options.count);
  const auto tokens = static_cast<int64_t>(
      compose("", drawer.draw(count, rng), std::vector<double>(count), questions(count, rng)).ids.size());
  if (tokens + options.count > context) {
    fail(ErrorCode::usage,
         "data.needles.count: {} needles of form {} and their questions take about {} tokens, the context is {}; ask "
         "for fewer or lengthen train.context",
         count, to_string(options.form), tokens, context);
  }
}

double NeedleDocuments::tokens_per_byte(const Haystack& haystack) const {
  Haystack::Run run(haystack, Rng(options_.seed, kStream - 2));
  std::string sample;
  while (sample.size() < 8192) sample += run.next();
  return static_cast<double>(tokenizer_->encode(sample).size()) / static_cast<double>(sample.size());
}

int64_t NeedleDocuments::needles_at(double progress) const {
  // 1, 2, 4 … and at last `count` itself, each for an equal part of the rise.
  const auto stages = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(options_.count - 1))) + 1;
  if (progress >= options_.rise) return options_.count;
  const auto stage = static_cast<int64_t>(progress / options_.rise * static_cast<double>(stages));
  return std::min(options_.count, int64_t{1} << std::clamp<int64_t>(stage, 0, stages - 1));
}

int64_t NeedleDocuments::filler_at(double progress) const {
  const auto most = static_cast<double>(options_.filler);
  return static_cast<int64_t>(progress >= options_.filler_rise ? most : most * progress / options_.filler_rise);
}

NeedleDocuments::Document NeedleDocuments::compose(std::string_view filler, const std::vector<Needle>& needles,
                                                   const std::vector<double>& places,
                                                   const std::vector<size_t>& asked) const {
  std::vector<size_t> wanted;
  wanted.reserve(places.size());
  for (const double place : places) wanted.push_back(static_cast<size_t>(place * static_cast<double>(filler.size())));
  std::string text = insert_needles(filler, options_.form, needles, wanted).text;
  std::vector<ByteSpan> answers;
  for (const size_t i : asked) {
    text += needle_question(options_.form, needles[i].city);
    const std::string answer = needle_answer(options_.form, needles[i].number);
    answers.push_back({text.size(), text.size() + answer.size()});
    text += answer;
  }
  Document document;
  document.ids = tokenizer_->encode(text);
  const std::vector<size_t> ends = token_ends(*tokenizer_, text, document.ids);
  document.answers.assign(document.ids.size(), false);
  for (const ByteSpan& answer : answers) {
    const TokenSpan span = tokens_of(answer, ends);
    std::fill(document.answers.begin() + span.begin, document.answers.begin() + span.end, true);
  }
  if (tokenizer_->bos >= 0) {
    document.ids.insert(document.ids.begin(), tokenizer_->bos);
    document.answers.insert(document.answers.begin(), false);
  }
  return document;
}

NeedleDocuments::Document NeedleDocuments::document(size_t needles, int64_t filler, int64_t room, NeedleDrawer& drawer,
                                                    Rng& rng) const {
  const std::vector<Needle> drawn = drawer.draw(needles, rng);
  std::vector<double> places;
  for (size_t i = 0; i < needles; ++i) places.push_back(rng.uniform());
  const std::vector<size_t> asked = questions(needles, rng);
  Document document = compose("", drawn, places, asked);
  const auto bare = static_cast<int64_t>(document.ids.size());
  if (bare > room) return {};
  const bool from_text = text_ && rng.below(2) == 1;
  Haystack::Run run(from_text ? *text_ : neutral_, Rng(rng.bits(), kStream));
  // The filler's length is guessed from its bytes, and shortened until it fits.
  double bytes =
      static_cast<double>(std::min(filler, room - bare)) / std::max(from_text ? text_rate_ : neutral_rate_, 1e-3);
  std::string text;
  while (true) {
    const std::string_view unit = run.next();
    if (static_cast<double>(text.size() + unit.size()) > bytes) break;
    text += unit;
  }
  std::string_view body = without_blanks_at_end(text);
  while (!body.empty()) {
    Document longer = compose(body, drawn, places, asked);
    if (static_cast<int64_t>(longer.ids.size()) <= room) return longer;
    const size_t blank = body.find_last_of(" \n", body.size() * 9 / 10);
    body = without_blanks_at_end(body.substr(0, blank == std::string_view::npos ? 0 : blank));
  }
  return document;
}

void NeedleDocuments::fill_row(uint64_t index, double progress, std::span<int32_t> inputs, std::span<int32_t> targets,
                               std::span<int32_t> document_starts) const {
  const auto length = context_ + 1;  // the last token is a target only
  Rng rng(options_.seed, kStream + index);
  NeedleDrawer drawer(options_.form, NeedleSplit::train);
  const auto needles = static_cast<size_t>(needles_at(progress));
  const int64_t most = std::min(filler_at(progress), context_);
  std::vector<int32_t> ids, starts;
  std::vector<bool> answers;
  const auto append = [&](const Document& document) {
    starts.insert(starts.end(), document.ids.size(), static_cast<int32_t>(ids.size()));
    ids.insert(ids.end(), document.ids.begin(), document.ids.end());
    answers.insert(answers.end(), document.answers.begin(), document.answers.end());
  };
  while (static_cast<int64_t>(ids.size()) < length) {
    const int64_t room = length - static_cast<int64_t>(ids.size());
    const auto filler = static_cast<int64_t>(rng.below(static_cast<uint64_t>(most) + 1));
    Document next = document(needles, filler, room, drawer, rng);
    if (next.ids.empty()) {
      Haystack::Run run(neutral_, Rng(rng.bits(), kStream));
      std::string text;
      while (static_cast<int64_t>(next.ids.size()) < room) {
        text += run.next();
        next.ids = tokenizer_->encode(text);
        if (tokenizer_->bos >= 0) next.ids.insert(next.ids.begin(), tokenizer_->bos);
      }
      next.ids.resize(static_cast<size_t>(room));
      next.answers.assign(next.ids.size(), false);
    }
    append(next);
  }
  for (size_t i = 0; i < static_cast<size_t>(context_); ++i) {
    inputs[i] = ids[i];
    targets[i] = answers[i + 1] ? ids[i + 1] : -1;
    document_starts[i] = starts[i];
  }
}

}  // namespace unchain::text
