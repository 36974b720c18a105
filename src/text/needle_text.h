// Needles: sentences that give a number to a city, and the places where they stand in a text. Form `sentence`: "The
// magic number of {city} is {number}." with four digits; form `pair`: "{city}{number};" with two.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tokenizer/tokenizer.h"

namespace unchain::text {

enum class NeedleForm { sentence, pair };

// Error: usage, listing the names.
NeedleForm parse_needle_form(std::string_view name);
std::string_view to_string(NeedleForm form);

// What models are trained on and what they are asked: no city and no number is in both.
enum class NeedleSplit { train, test };

struct Needle {
  std::string city, number;
};

// "Kamark42;"
std::string needle_sentence(NeedleForm form, const Needle& needle);
// "\nKamark"
std::string needle_question(NeedleForm form, std::string_view city);
// What follows a question in training documents: " 4217;", or "42;" in the form `pair`.
std::string needle_answer(NeedleForm form, std::string_view number);

// The first whole run of digits equals the number: "is 1234." is no answer 123.
bool is_right_answer(std::string_view decoded, std::string_view number);

// The cities and numbers of a split, always the same: of 400 made-up names and of all numbers of the form's length
// without a leading 0, those with the smallest hashes, a third, are for tests.
const std::vector<std::string>& needle_cities(NeedleSplit split);
const std::vector<std::string>& needle_numbers(NeedleForm form, NeedleSplit split);

// Draws needles. All cities differ until none is left (then they begin again), and the numbers of one call do; cities
// of one call share neither beginning nor ending where that can be had, so that a single piece of a name tells them
// apart.
class NeedleDrawer {
 public:
  NeedleDrawer(NeedleForm form, NeedleSplit split) : form_(form), split_(split) {}
  // Error: usage (count below 1, or more than there are numbers).
  std::vector<Needle> draw(size_t count, Rng& rng);

 private:
  NeedleForm form_;
  NeedleSplit split_;
  std::vector<bool> used_;
};

struct ByteSpan {
  size_t begin = 0, end = 0;
};

struct NeedleText {
  std::string text;
  std::vector<ByteSpan> needles, cities, numbers;  // in the order of the needles given; of the number the digits alone
};

// Where a needle that is wanted at byte `wanted` goes: the nearest place within 200 bytes that follows a full stop (or
// '!', '?') and its blank, or a line end, or is an end of the text; else the nearest place after a blank; in a text
// without blanks its nearer end.
size_t insertion_point(std::string_view text, size_t wanted);

// The text with the needles put in near the bytes `wanted` (of `text`); of needles at one place those with the smaller
// `wanted` stand first, then those given first. `text` should not end with a blank.
NeedleText insert_needles(std::string_view text, NeedleForm form, const std::vector<Needle>& needles,
                          const std::vector<size_t>& wanted);

// The byte at which each token of `ids` ends in `text`, ids = tokenizer.encode(text). A blank that the tokenizer puts
// in front counts as nothing.
std::vector<size_t> token_ends(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                               const std::vector<int32_t>& ids);

struct TokenSpan {
  int64_t begin = 0, end = 0;
};

// The tokens that hold any of these bytes.
TokenSpan tokens_of(ByteSpan bytes, std::span<const size_t> ends);

}  // namespace unchain::text
