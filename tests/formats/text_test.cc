#include "formats/text.h"

#include <gtest/gtest.h>

namespace unchain::formats {
namespace {

TEST(Text, Utf8) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(valid_utf8(good)) << printable(good);
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xe1\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe"}) {
    EXPECT_FALSE(valid_utf8(bad)) << printable(bad);
  }
  EXPECT_TRUE(valid_utf8(std::string_view("\0", 1)));
}

TEST(Text, PrintableIsSafeAndShort) {
  EXPECT_EQ(printable("blk.0 é"), "blk.0 é");
  EXPECT_EQ(printable("a\n\x1b[31m\x7f\xff"), "a\\x0a\\x1b[31m\\x7f\\xff");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_LT(printable(std::string(1000, 'x')).size(), 110u);
}

}  // namespace
}  // namespace unchain::formats
