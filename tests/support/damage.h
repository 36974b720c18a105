// Damaged copies of a sound file, for readers that must refuse them or read them safely.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

namespace unchain::test {

// Every shorter beginning of `good` must be refused. survives(text): whether the reader takes it; it uses all that it
// got.
template <class Survives>
void expect_cuts_refused(const std::string& good, const Survives& survives) {
  ASSERT_TRUE(survives(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(survives(good.substr(0, n))) << n << " of " << good.size();
}

// 20000 copies with up to four changed bytes, one in eight cut as well: flipped bits and, if there are any, `letters`
// that a text of the format is made of. Some copies must pass and some not, or the damage shows nothing.
template <class Survives>
void expect_damage_survived(const std::string& good, std::string_view letters, const Survives& survives) {
  constexpr int kCopies = 20000;
  std::mt19937 random(1);
  int sound = 0;
  for (int i = 0; i < kCopies; ++i) {
    std::string text = good;
    for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes) {
      // Half of the changes go to the first half, where headers and tables are.
      char& c = text[random() % (random() % 2 ? text.size() : text.size() / 2)];
      const bool letter = !letters.empty() && random() % 2;
      c = letter ? letters[random() % letters.size()] : static_cast<char>(c ^ (1 << random() % 8));
    }
    if (random() % 8 == 0) text.resize(random() % text.size());
    sound += survives(text);
  }
  EXPECT_GT(sound, 0);
  EXPECT_LT(sound, kCopies);
}

}  // namespace unchain::test
