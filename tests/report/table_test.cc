#include "report/table.h"

#include <gtest/gtest.h>

#include "unchain/error.h"

namespace unchain::report {
namespace {

TEST(DisplayWidth, CountsColumnsAndNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("caf\u00e9"), 4);
  EXPECT_EQ(display_width("cafe\u0301"), 4);    // combining accent
  EXPECT_EQ(display_width("\u65e5\u672c"), 4);  // wide
  EXPECT_EQ(display_width("\U0001f600"), 2);    // emoji
  EXPECT_EQ(display_width("\u2581the"), 4);
}

TEST(Printable, NothingSteersTheTerminal) {
  EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xff"
                      "a\xe2\x82"),
            "\\xffa\\xe2\\x82");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9b");                // a control sequence in one character
  EXPECT_EQ(printable("\u65e5\u00e9"), "\u65e5\u00e9");
}

TEST(TextTable, AlignsByDisplayColumns) {
  TextTable table;
  table.column("name").column("value", TextTable::Align::right);
  table.row({"\u65e5", "1"}).row({"long name", "12.5"});
  EXPECT_EQ(table.text(),
            "name       value\n"
            "---------  -----\n"
            "\u65e5             1\n"
            "long name   12.5\n");
}

TEST(TextTable, WithoutRowsIsItsHeader) {
  TextTable table;
  table.column("a").column("b");
  EXPECT_EQ(table.text(), "a  b\n-  -\n");
}

TEST(TextTable, WrongNumberOfCellsIsAnError) {
  TextTable table;
  table.column("a");
  EXPECT_THROW(table.row({"1", "2"}), Error);
}

}  // namespace
}  // namespace unchain::report
