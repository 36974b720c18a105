#include "text/haystack.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "formats/text.h"

namespace unchain::text {
namespace {

constexpr size_t kLongest = 200;  // bytes of a unit

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Bytes of the unit at the start of `text`, at least 1.
size_t unit_bytes(std::string_view text) {
  size_t blank = 0;  // the end of the last word that fits
  for (size_t at = 0; at < text.size() && at < kLongest; ++at) {
    if (text[at] == '\n') return at + 1;
    if (!is_blank(text[at])) continue;
    blank = at + 1;
    if (at > 0 && std::string_view(".!?").find(text[at - 1]) != std::string_view::npos) return blank;
  }
  if (text.size() <= kLongest) return text.size();
  if (blank > 0) return blank;
  size_t end = 0;
  while (true) {
    const size_t bytes = std::max<size_t>(formats::character_bytes(text.substr(end)), 1);
    if (end + bytes > kLongest) return end;
    end += bytes;
  }
}

}  // namespace

Haystack::Haystack() : shuffled_(true) {
  for (const std::string_view sentence : neutral_sentences()) {
    units_.emplace_back(text_.size(), sentence.size() + 1);
    text_.append(sentence).append(" ");
  }
}

Haystack::Haystack(std::string text, const std::string& name) : text_(std::move(text)) {
  if (std::all_of(text_.begin(), text_.end(), is_blank))
    fail(ErrorCode::format, "{}: has no text to hide needles in", name);
  if (!is_blank(text_.back())) text_ += '\n';
  for (size_t at = 0; at < text_.size();) {
    const size_t bytes = unit_bytes(std::string_view(text_).substr(at));
    units_.emplace_back(at, bytes);
    at += bytes;
  }
}

Haystack::Run::Run(const Haystack& haystack, Rng rng) : haystack_(haystack), rng_(rng) {
  if (!haystack.shuffled_) at_ = rng_.below(haystack.units_.size());
}

std::string_view Haystack::Run::next() {
  const size_t units = haystack_.units_.size();
  size_t unit = at_ % units;
  if (haystack_.shuffled_) {
    if (unit == 0) {
      order_.resize(units);
      std::iota(order_.begin(), order_.end(), size_t{0});
      for (size_t i = units - 1; i > 0; --i) std::swap(order_[i], order_[rng_.below(i + 1)]);
    }
    unit = order_[unit];
  }
  ++at_;
  const auto [first, bytes] = haystack_.units_[unit];
  return std::string_view(haystack_.text_).substr(first, bytes);
}

const std::vector<std::string_view>& neutral_sentences() {
  static const std::vector<std::string_view> sentences = {"The baker opened the window and let the cool air in.",
                                                          "A grey cat slept on the wall behind the garden.",
                                                          "Rain fell softly on the roof of the old barn.",
                                                          "She wrote a short letter and put it in a drawer.",
                                                          "The path along the stream was wet but easy to walk.",
                                                          "Nobody could say who had planted the tall trees.",
                                                          "He mended the chair with glue and a piece of string.",
                                                          "In the evening the lamps were lit one after another.",
                                                          "The soup needed a little more salt and some bread.",
                                                          "Two children were building a boat out of paper.",
                                                          "The wind turned, and the smoke went the other way.",
                                                          "A good map shows the hills as well as the roads.",
                                                          "They waited under the bridge until the storm was over.",
                                                          "The teacher drew a circle and asked what it might be.",
                                                          "Fresh snow covered the fields before breakfast.",
                                                          "My uncle keeps bees and gives honey to his neighbours.",
                                                          "The clock in the hall has not been right for years.",
                                                          "Birds gathered on the wires and left before dark.",
                                                          "It takes patience to teach a dog to wait.",
                                                          "The painter mixed blue and yellow to make green.",
                                                          "A wooden gate stood open at the end of the lane.",
                                                          "We ate apples and talked about the coming summer.",
                                                          "The river is low at this time of the year.",
                                                          "Her coat was too warm for such a mild day.",
                                                          "The train was late, so he read the paper again.",
                                                          "Some stones in the wall are older than the house.",
                                                          "An old song came from the kitchen, without its words.",
                                                          "The farmer counted the sheep and closed the fence.",
                                                          "Dust danced in the light that came through the door.",
                                                          "They shared the last piece of cake between them.",
                                                          "The library smelled of paper and floor polish.",
                                                          "A spider had made its web between the flower pots.",
                                                          "The shoes were new and still a little stiff.",
                                                          "On the table lay a knife, a spoon and a lemon.",
                                                          "The fog lifted late, and the coast came into view.",
                                                          "He likes to whistle while he is washing the dishes.",
                                                          "Nothing grows under the firs but moss and mushrooms.",
                                                          "The carpenter measured the board once more.",
                                                          "A small fire is enough to boil water for tea.",
                                                          "The market was quiet because of the holiday.",
                                                          "Her brother plays the violin, though not very often.",
                                                          "The road climbs slowly and then falls to the lake.",
                                                          "Someone had left a red scarf on the bench.",
                                                          "The grass was cut early, while it was still wet.",
                                                          "At noon the bell rang, and everybody went to eat.",
                                                          "The ferry carried more bicycles than cars.",
                                                          "A careful reader looks at the notes as well.",
                                                          "The tea was hot, and the biscuits were dry.",
                                                          "Old ropes hung from the ceiling of the boathouse.",
                                                          "The gardener watered the beans before sunrise.",
                                                          "Their dog barks at the moon and at the postman.",
                                                          "The curtain moved, although the window was shut.",
                                                          "He folded the blanket and put it on the shelf.",
                                                          "The actors bowed, and the audience rose to its feet.",
                                                          "A thin layer of ice lay on the bucket.",
                                                          "The mill has been empty since the new one was built.",
                                                          "We could hear the sea long before we saw it.",
                                                          "The tailor sewed on the button with black thread.",
                                                          "Leaves blew across the yard and into the ditch.",
                                                          "The night was clear, and the stars seemed close."};
  return sentences;
}

}  // namespace unchain::text
