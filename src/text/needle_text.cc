#include "text/needle_text.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"

namespace unchain::text {
namespace {

constexpr size_t kEndings = 20;
constexpr size_t kReach = 200;  // bytes to either side in which the end of a sentence is looked for

// Parts that common vocabularies have as a piece or two, so that even small models can tell the names apart.
constexpr std::string_view kCityBeginnings[] = {"Ba", "Ca", "Da", "Di", "Fa", "Ha", "Ja", "Ka", "La", "Li",
                                                "Ma", "Na", "Pa", "Ra", "Sa", "So", "Ta", "Va", "Wa", "Wi"};
constexpr std::string_view kCityEndings[kEndings] = {"ward", "way",  "port", "stand", "land", "ford", "gate",
                                                     "ness", "mark", "end",  "place", "fore", "side", "well",
                                                     "ham",  "ton",  "bury", "field", "hill", "stone"};

struct Splits {
  std::vector<std::string> train, test;
  const std::vector<std::string>& of(NeedleSplit split) const { return split == NeedleSplit::train ? train : test; }
};

// The third with the smallest hashes is for tests; each part keeps the order of `all`.
Splits split_by_hash(const std::vector<std::string>& all) {
  std::vector<uint64_t> hashes;
  hashes.reserve(all.size());
  for (const std::string& name : all) hashes.push_back(hash_number(0, hash_bytes(name)));
  std::vector<uint64_t> sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  const uint64_t limit = sorted[all.size() / 3];
  Splits splits;
  for (size_t i = 0; i < all.size(); ++i) (hashes[i] < limit ? splits.test : splits.train).push_back(all[i]);
  return splits;
}

Splits make_numbers(int first, int last) {
  std::vector<std::string> all;
  for (int number = first; number <= last; ++number) all.push_back(std::to_string(number));
  return split_by_hash(all);
}

const Splits& cities() {
  static const Splits splits = [] {
    std::vector<std::string> all;
    for (const std::string_view beginning : kCityBeginnings) {
      for (const std::string_view ending : kCityEndings) all.push_back(std::string(beginning).append(ending));
    }
    return split_by_hash(all);
  }();
  return splits;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Whether a sentence or line ends right before byte `at`.
bool follows_sentence(std::string_view text, size_t at) {
  if (at == 0 || at == text.size() || text[at - 1] == '\n') return true;
  return at >= 2 && is_blank(text[at - 1]) && std::string_view(".!?").find(text[at - 2]) != std::string_view::npos;
}

// The place nearest to `wanted`, at most `reach` away, for which good(place) holds; text.size() + 1 if there is none.
template <class Good>
size_t nearest(std::string_view text, size_t wanted, size_t reach, const Good& good) {
  for (size_t away = 0; away <= reach && away <= text.size(); ++away) {
    if (wanted >= away && good(wanted - away)) return wanted - away;
    if (wanted + away <= text.size() && good(wanted + away)) return wanted + away;
  }
  return text.size() + 1;
}

// Whether two of our names begin or end with the same part.
bool alike(std::string_view a, std::string_view b) {
  const auto parts = [](std::string_view name) {
    for (const std::string_view beginning : kCityBeginnings) {
      if (name.starts_with(beginning)) return std::pair{beginning, name.substr(beginning.size())};
    }
    return std::pair{name, name};
  };
  const auto [first_a, last_a] = parts(a);
  const auto [first_b, last_b] = parts(b);
  return first_a == first_b || last_a == last_b;
}

}  // namespace

NeedleForm parse_needle_form(std::string_view name) {
  if (name == "sentence") return NeedleForm::sentence;
  if (name == "pair") return NeedleForm::pair;
  fail(ErrorCode::usage, "form '{}' is unknown, expected sentence or pair", name);
}

std::string_view to_string(NeedleForm form) {
  return form == NeedleForm::sentence ? "sentence" : "pair";
}

std::string needle_sentence(NeedleForm form, const Needle& needle) {
  return form == NeedleForm::sentence ? fmt::format("The magic number of {} is {}.", needle.city, needle.number)
                                      : fmt::format("{}{};", needle.city, needle.number);
}

std::string needle_question(NeedleForm form, std::string_view city) {
  return form == NeedleForm::sentence ? fmt::format("\nThe magic number of {} is", city) : fmt::format("\n{}", city);
}

std::string needle_answer(NeedleForm form, std::string_view number) {
  return fmt::format("{}{};", form == NeedleForm::sentence ? " " : "", number);
}

bool is_right_answer(std::string_view decoded, std::string_view number) {
  const auto first = std::find_if(decoded.begin(), decoded.end(), is_digit);
  const auto last = std::find_if_not(first, decoded.end(), is_digit);
  return first != last && std::equal(first, last, number.begin(), number.end());
}

const std::vector<std::string>& needle_cities(NeedleSplit split) {
  return cities().of(split);
}

const std::vector<std::string>& needle_numbers(NeedleForm form, NeedleSplit split) {
  static const Splits pair = make_numbers(10, 99), sentence = make_numbers(1000, 9999);
  return (form == NeedleForm::pair ? pair : sentence).of(split);
}

std::vector<Needle> NeedleDrawer::draw(size_t count, Rng& rng) {
  const std::vector<std::string>& all_cities = needle_cities(split_);
  const std::vector<std::string>& all_numbers = needle_numbers(form_, split_);
  const size_t most = std::min(all_cities.size(), all_numbers.size());
  if (count < 1 || count > most) {
    fail(ErrorCode::usage, "needles: {} of form {} are asked for, expected 1 to {}, so that all have other numbers",
         count, to_string(form_), most);
  }
  if (used_.empty()) used_.assign(all_cities.size(), false);
  if (static_cast<size_t>(std::count(used_.begin(), used_.end(), false)) < count)
    used_.assign(all_cities.size(), false);
  std::vector<Needle> needles;
  std::vector<bool> number_used(all_numbers.size(), false);
  constexpr int kTries = 50;  // then a name that is like another one will do
  while (needles.size() < count) {
    size_t city = 0, number = 0;
    for (int tries = 0;; ++tries) {
      city = rng.below(all_cities.size());
      const auto like = [&](const Needle& other) { return alike(other.city, all_cities[city]); };
      if (!used_[city] && (tries >= kTries || std::none_of(needles.begin(), needles.end(), like))) break;
    }
    do number = rng.below(all_numbers.size());
    while (number_used[number]);
    used_[city] = number_used[number] = true;
    needles.push_back({all_cities[city], all_numbers[number]});
  }
  return needles;
}

size_t insertion_point(std::string_view text, size_t wanted) {
  wanted = std::min(wanted, text.size());
  size_t at = nearest(text, wanted, kReach, [&](size_t place) { return follows_sentence(text, place); });
  if (at <= text.size()) return at;
  at = nearest(text, wanted, text.size(), [&](size_t place) { return place > 0 && is_blank(text[place - 1]); });
  if (at <= text.size()) return at;
  return wanted <= text.size() / 2 ? 0 : text.size();
}

NeedleText insert_needles(std::string_view text, NeedleForm form, const std::vector<Needle>& needles,
                          const std::vector<size_t>& wanted) {
  std::vector<size_t> points, order(needles.size());
  for (const size_t byte : wanted) points.push_back(insertion_point(text, byte));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(points[a], wanted[a]) < std::pair(points[b], wanted[b]);
  });
  NeedleText result;
  result.needles.resize(needles.size());
  result.cities.resize(needles.size());
  result.numbers.resize(needles.size());
  size_t done = 0;
  for (const size_t i : order) {
    result.text.append(text.substr(done, points[i] - done));
    done = points[i];
    if (!result.text.empty() && !is_blank(result.text.back())) result.text += ' ';
    const std::string sentence = needle_sentence(form, needles[i]);
    const size_t begin = result.text.size(), number = begin + sentence.size() - 1 - needles[i].number.size();
    result.needles[i] = {begin, begin + sentence.size()};
    const size_t city = begin + sentence.find(needles[i].city);
    result.cities[i] = {city, city + needles[i].city.size()};
    result.numbers[i] = {number, number + needles[i].number.size()};
    result.text += sentence;
    if (done < text.size()) result.text += ' ';
  }
  result.text.append(text.substr(done));
  return result;
}

std::vector<size_t> token_ends(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                               const std::vector<int32_t>& ids) {
  std::vector<size_t> ends;
  if (ids.empty()) return ends;
  // Behind another token each piece decodes to all of its bytes: a tokenizer that puts a blank in front of a text takes
  // it away at the front only.
  const size_t anchor = tokenizer.decode({ids[0]}).size();
  size_t total = 0;
  for (const int32_t id : ids) ends.push_back(total += tokenizer.decode({ids[0], id}).size() - anchor);
  if (total < text.size() || total > text.size() + 1)
    fail(ErrorCode::unsupported,
         "needles: the tokens stand for {} bytes, the text has {}: the vocabulary has no pieces for some characters of "
         "the haystack; give another --haystack",
         total, text.size());
  const size_t front = total - text.size();
  for (size_t& end : ends) end -= std::min(front, end);
  return ends;
}

TokenSpan tokens_of(ByteSpan bytes, std::span<const size_t> ends) {
  const auto first = std::upper_bound(ends.begin(), ends.end(), bytes.begin);  // the first that ends after the begin
  const auto last = std::lower_bound(ends.begin(), ends.end(), bytes.end);     // the first that reaches the end
  return {first - ends.begin(), std::min<int64_t>(last - ends.begin() + 1, static_cast<int64_t>(ends.size()))};
}

}  // namespace unchain::text
