// Broken GGUF files: an Error that says what is wrong, or a file that can be used; nothing else.
#include <gtest/gtest.h>

#include "formats/convert.h"
#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
#include "support/damage.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using formats::GgufFile;
constexpr auto kFormat = ErrorCode::format;
constexpr auto kUnsupported = ErrorCode::unsupported;

void expect_bad(const Bytes& bytes, ErrorCode code, std::initializer_list<std::string> parts) {
  expect_error([&] { parse_gguf(bytes.text()); }, code, {"model.gguf"});
  expect_error([&] { parse_gguf(bytes.text()); }, code, parts);
}

// Whether it parses; if so, everything in it is used once.
bool survives(const std::string& text) {
  try {
    const GgufFile f = parse_gguf(text);
    for (const Tensor& t : f.tensors()) {
      if (!formats::can_decode(t.type)) continue;
      std::vector<float> values(static_cast<size_t>(t.elements()));
      formats::decode(t, 0, t.elements(), values.data());
    }
    return true;
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("model.gguf: ")) << e.what();
    EXPECT_TRUE(e.code() == kFormat || e.code() == kUnsupported) << e.what();
    return false;
  }
}

// Every length, hence every structural boundary and every place between two.
TEST(GgufBad, CutAnywhere) {
  expect_cuts_refused(rich_gguf().text(), survives);
}

TEST(GgufBad, FlippedBits) {
  expect_damage_survived(rich_gguf().text(), "", survives);
}

TEST(GgufBad, EveryFieldHuge) {
  const Bytes good = rich_gguf();
  for (const size_t at : good.boundaries()) {
    for (const uint64_t value :
         {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 62, uint64_t{1} << 32, uint64_t{0x7fffffff}}) {
      std::string text = good.text();
      if (at + 8 > text.size()) continue;
      std::memcpy(text.data() + at, &value, 8);
      survives(text);
      std::memcpy(text.data() + at, good.text().data() + at, 8);
      std::memcpy(text.data() + at, &value, 4);
      survives(text);
    }
  }
}

TEST(GgufBad, WhatTheFileReallyIs) {
  const auto expect_start = [](const std::string& text, const std::string& part) {
    expect_error([&] { parse_gguf(text); }, kFormat, {"model.gguf: not a GGUF file", part});
  };
  expect_start("", "is empty");
  expect_start("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  expect_start("<!DOCTYPE html>", "web page");
  expect_start("PK\x03\x04....", "ZIP");
  expect_start(std::string("\x10\0\0\0\0\0\0\0{\"a\":", 13), "safetensors");
  expect_start("FUGG\x01", "46 55 47 47 01");
  expect_start("GGU", "47 47 55");
}

TEST(GgufBad, Versions) {
  expect_bad(Bytes().header(0, 0, 0x03000000), kFormat, {"big-endian", "little-endian"});
  expect_bad(Bytes().header(0, 0, 0x02000000), kFormat, {"big-endian"});
  expect_bad(Bytes().header(0, 0, 1), kUnsupported, {"version 1", "2 or 3"});
  expect_bad(Bytes().header(0, 0, 4), kUnsupported, {"version 4"});
  expect_bad(Bytes().header(0, 0, 0), kUnsupported, {"version 0"});
}

TEST(GgufBad, Counts) {
  expect_bad(Bytes().header(UINT64_MAX, 0), kFormat, {"tensor count", "18446744073709551615"});
  expect_bad(Bytes().header(0, uint64_t{1} << 60), kFormat, {"metadata count"});
  expect_bad(Bytes().header(0, 1).key("k", 8).u64(UINT64_MAX).raw("abc"), kFormat,
             {"key k", "18446744073709551615 bytes", "incomplete"});
  expect_bad(Bytes().header(0, 1).key("k", 9).u32(12).u64(uint64_t{1} << 61).raw(std::string(64, 'x')), kFormat,
             {"key k", "array count", "at most 8"});
  expect_bad(Bytes().header(0, 1).key("k", 9).u32(8).u64(1u << 30).raw(std::string(64, 'x')), kFormat, {"array count"});
}

TEST(GgufBad, Metadata) {
  expect_bad(Bytes().header(0, 1).key("k", 13).u64(0), kFormat, {"key k", "type 13", "0 to 12"});
  expect_bad(Bytes().header(0, 1).key("k", 9).u32(77).u64(0), kFormat, {"key k", "type 77"});
  expect_bad(Bytes().header(0, 1).key("k", 7).u8(2), kFormat, {"key k", "bool", "is 2"});
  expect_bad(Bytes().header(0, 1).key("", 7).u8(1), kFormat, {"metadata entry 1 of 1", "0 bytes"});
  expect_bad(Bytes().header(0, 1).key("a\x1b[31m\xff", 7).u8(1), kFormat, {"a\\x1b[31m\\xff", "UTF-8"});
  expect_bad(Bytes().header(0, 1).key(std::string(70000, 'a'), 7).u8(1), kFormat, {"70000 bytes", "65535"});
  expect_bad(Bytes().header(0, 2).key("k", 7).u8(1).key("k", 7).u8(1), kFormat, {"key k", "twice"});
  Bytes deep;
  deep.header(0, 1).key("k", 9);
  for (int i = 0; i < 100000; ++i) deep.u32(9).u64(1);
  expect_bad(deep, kFormat, {"key k", "nested more than 8"});
}

TEST(GgufBad, Alignment) {
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21, UINT32_MAX}) {
    expect_bad(Bytes().header(0, 1).key("general.alignment", 4).u32(alignment), kFormat,
               {"general.alignment", std::to_string(alignment), "power of two"});
  }
  expect_bad(Bytes().header(0, 1).key("general.alignment", 8).string("32"), kFormat,
             {"general.alignment", "an integer"});
  expect_bad(Bytes().header(1, 0).tensor("x", {1}, 0, 4).pad().raw("12345678"), kFormat,
             {"tensor x", "offset 4", "alignment 32"});
}

TEST(GgufBad, TensorShapes) {
  const auto one = [](const std::vector<uint64_t>& sizes, uint32_t type) {
    return Bytes().header(1, 0).tensor("x", sizes, type, 0).pad().raw(std::string(64, 'x'));
  };
  expect_bad(one({1, 1, 1, 1, 1}, 0), kFormat, {"tensor x", "5 dimensions", "at most 4"});
  expect_bad(one({uint64_t{1} << 63}, 0), kFormat, {"tensor x", "dimension 0", "9223372036854775808"});
  expect_bad(one({uint64_t{1} << 32, uint64_t{1} << 32}, 0), kFormat, {"tensor x", "[4294967296, 4294967296]"});
  expect_bad(one({uint64_t{1} << 62}, 0), kFormat, {"tensor x", "more bytes"});
  expect_bad(one({16}, 8), kFormat, {"tensor x", "q8_0", "32"});
  expect_bad(one({32, 32}, 0), kFormat,
             {"tensor x", "offset 0 + 4096 bytes goes past the end of the file", "the download is incomplete"});
}

TEST(GgufBad, TensorTypesThatWeLackAreUnsupportedNotDamaged) {
  const auto one = [](uint32_t type) {
    return Bytes().header(1, 0).tensor("x", {256}, type, 0).pad().raw(std::string(1024, 'x'));
  };
  expect_bad(one(20), kUnsupported, {"tensor x", "iq4_nl (20)"});
  expect_bad(one(39), kUnsupported, {"mxfp4 (39)"});
  expect_bad(one(4), kUnsupported, {"type 4"});
  expect_bad(one(999), kUnsupported, {"type 999"});
  // Known by size, so that they can be listed; their values cannot be read.
  for (const uint32_t type : {2u, 7u, 10u, 11u, 13u}) {
    const GgufFile f = parse_gguf(one(type).text());
    float values[256];
    expect_error([&] { formats::decode(f.tensors()[0], 0, 256, values); }, kUnsupported, {"tensor x", "q4_1"});
  }
}

TEST(GgufBad, TensorPlaces) {
  Bytes overlap;
  overlap.header(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).pad().raw(std::string(64, 'x'));
  expect_bad(overlap, kFormat, {"tensor a", "0 to 64", "overlap", "tensor b", "32"});
  Bytes same;
  same.header(2, 0).tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).pad().raw(std::string(64, 'x'));
  expect_bad(same, kFormat, {"overlap"});
  Bytes wrap;
  wrap.header(1, 0).tensor("a", {16}, 0, UINT64_MAX - 31).pad().raw(std::string(64, 'x'));
  expect_bad(wrap, kFormat, {"tensor a", "past the end"});
  Bytes twice;
  twice.header(2, 0).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).pad().raw(std::string(64, 'x'));
  expect_bad(twice, kFormat, {"tensor a", "twice"});
}

TEST(GgufBad, Paths) {
  TemporaryFolder folder;
  expect_error([&] { GgufFile::open(folder.path()); }, ErrorCode::io, {"is a directory"});
  expect_error([&] { GgufFile::open("/dev/null"); }, ErrorCode::io, {"/dev/null", "device"});
  expect_error([&] { GgufFile::open(folder / "absent.gguf"); }, ErrorCode::io, {"absent.gguf", "No such file"});
}

}  // namespace
}  // namespace unchain::test
