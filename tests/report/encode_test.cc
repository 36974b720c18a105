#include "report/encode.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace unchain::report {
namespace {

TEST(Gzip, IsReadBackByZlib) {
  for (const std::string& text : {std::string(), std::string("x"), std::string(100000, 'y') + "end"}) {
    const std::string packed = gzip(text);
    std::string out(text.size() + 1, '\0');
    z_stream stream{};
    ASSERT_EQ(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    inflateEnd(&stream);
    EXPECT_EQ(out, text);
    EXPECT_EQ(packed, gzip(text));
  }
}

}  // namespace
}  // namespace unchain::report
