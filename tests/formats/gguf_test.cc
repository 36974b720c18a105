#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "formats/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace unchain::test {

using formats::GgufArray;
using formats::GgufEntry;
using formats::GgufFile;
using formats::write_gguf;

Bytes rich_gguf(uint32_t version) {
  Bytes b;
  b.header(7, 18, version);
  b.key("v.u8", 0).u8(200).key("v.i8", 1).number<int8_t>(-7).key("v.u16", 2).number<uint16_t>(60000);
  b.key("v.i16", 3).number<int16_t>(-30000).key("v.u32", 4).u32(4000000000u).key("v.i32", 5).number<int32_t>(-5);
  b.key("v.f32", 6).number(0.1f).key("v.bool", 7).u8(1).key("v.string", 8).string("Gr\xc3\xbc\xc3\x9f\x65");
  b.key("v.u64", 10).u64(UINT64_MAX).key("v.i64", 11).number<int64_t>(INT64_MIN).key("v.f64", 12).number(0.1);
  b.key("l.strings", 9).u32(8).u64(3).string("a").string("").string(std::string("b\0c", 3));
  b.key("l.bools", 9).u32(7).u64(3).u8(1).u8(0).u8(1);
  b.key("l.f32", 9).u32(6).u64(2).number(1.5f).number(-2.5f);
  b.key("l.i16", 9).u32(3).u64(3).number<int16_t>(1).number<int16_t>(-2).number<int16_t>(3);
  b.key("l.nested", 9).u32(9).u64(2).u32(5).u64(1).number<int32_t>(9).u32(8).u64(1).string("x");
  b.key("l.empty", 9).u32(12).u64(0);
  b.tensor("matrix", {2, 3}, 0, 0).tensor("half", {3}, 1, 32).tensor("q4_1", {32, 2}, 3, 64);
  b.tensor("ints", {2}, 26, 128)
      .tensor("none", {0, 5}, 0, 160)
      .tensor("scalar", {}, 30, 160)
      .tensor("q6_k", {256}, 14, 192);
  b.pad();
  for (int i = 0; i < 6; ++i) b.number(static_cast<float>(i));
  b.pad()
      .raw("abcdef")
      .pad()
      .raw(std::string(40, 'q'))
      .pad()
      .raw("12345678")
      .pad()
      .raw("zz")
      .pad()
      .raw(std::string(210, 'k'));
  return b;
}

namespace {

TEST(Gguf, EveryValueTypeIsRead) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile f = parse_gguf(rich_gguf(version).text());
    EXPECT_EQ(f.version(), version);
    EXPECT_EQ(f.metadata().size(), 18u);
    EXPECT_EQ(f.metadata()[0].key, "v.u8");
    EXPECT_EQ(std::get<uint8_t>(*f.value("v.u8")), 200);
    EXPECT_EQ(std::get<int8_t>(*f.value("v.i8")), -7);
    EXPECT_EQ(std::get<uint16_t>(*f.value("v.u16")), 60000);
    EXPECT_EQ(std::get<int16_t>(*f.value("v.i16")), -30000);
    EXPECT_EQ(std::get<uint32_t>(*f.value("v.u32")), 4000000000u);
    EXPECT_EQ(std::get<int32_t>(*f.value("v.i32")), -5);
    EXPECT_EQ(std::get<float>(*f.value("v.f32")), 0.1f);
    EXPECT_EQ(std::get<bool>(*f.value("v.bool")), true);
    EXPECT_EQ(std::get<std::string>(*f.value("v.string")), "Gr\xc3\xbc\xc3\x9f\x65");
    EXPECT_EQ(std::get<uint64_t>(*f.value("v.u64")), UINT64_MAX);
    EXPECT_EQ(std::get<int64_t>(*f.value("v.i64")), INT64_MIN);
    EXPECT_EQ(std::get<double>(*f.value("v.f64")), 0.1);
    EXPECT_EQ(f.value("absent"), nullptr);
  }
}

TEST(Gguf, TypedAccess) {
  const GgufFile f = parse_gguf(rich_gguf().text());
  EXPECT_EQ(f.integer("v.u8"), 200);
  EXPECT_EQ(f.integer("v.i64"), INT64_MIN);
  EXPECT_EQ(f.number("v.i8"), -7.0);
  EXPECT_EQ(f.number("v.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(f.boolean("v.bool"), true);
  EXPECT_EQ(f.strings("l.strings"), (std::vector<std::string>{"a", "", std::string("b\0c", 3)}));
  EXPECT_EQ(f.numbers("l.f32"), (std::vector<double>{1.5, -2.5}));
  EXPECT_EQ(f.numbers("l.i16"), (std::vector<double>{1, -2, 3}));
  EXPECT_EQ(f.integers("l.i16"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(f.strings("l.empty"), std::vector<std::string>{});
  EXPECT_EQ(f.integers("l.empty"), std::vector<int64_t>{});
  EXPECT_FALSE(f.integer("absent") || f.number("absent") || f.boolean("absent") || f.string("absent") ||
               f.strings("absent") || f.numbers("absent") || f.integers("absent"));
  const auto format = ErrorCode::format;
  expect_error([&] { f.integer("v.string"); }, format, {"model.gguf", "v.string", "of type string", "an integer"});
  expect_error([&] { f.integer("v.u64"); }, format, {"v.u64", "18446744073709551615", "2^63"});
  expect_error([&] { f.integer("v.bool"); }, format, {"of type bool"});
  expect_error([&] { f.integer("v.f32"); }, format, {"of type f32"});
  expect_error([&] { f.number("v.bool"); }, format, {"a number"});
  expect_error([&] { f.boolean("v.u8"); }, format, {"of type u8", "a bool"});
  expect_error([&] { f.string("l.f32"); }, format, {"an array of 2 values of type f32", "a string"});
  expect_error([&] { f.strings("l.f32"); }, format, {"an array of strings"});
  expect_error([&] { f.strings("v.u8"); }, format, {"an array of strings"});
  expect_error([&] { f.integers("l.f32"); }, format, {"an array of integers"});
  expect_error([&] { f.numbers("l.strings"); }, format, {"an array of numbers"});
  expect_error([&] { f.numbers("l.bools"); }, format, {"an array of numbers"});
}

TEST(Gguf, TensorsAreOutermostFirstAndInPlace) {
  const GgufFile f = parse_gguf(rich_gguf().text());
  ASSERT_EQ(f.tensors().size(), 7u);
  const Tensor* matrix = f.find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->shape, (Shape{3, 2}));
  EXPECT_EQ(matrix->f32()[5], 5.0f);
  EXPECT_EQ(f.find("q4_1")->shape, (Shape{2, 32}));
  EXPECT_EQ(f.find("ints")->type, DType::i32);
  EXPECT_EQ(f.find("none")->bytes.size(), 0u);
  EXPECT_EQ(f.find("scalar")->shape, Shape{});
  EXPECT_EQ(f.find("scalar")->bytes.size(), 2u);
  EXPECT_EQ(f.find("absent"), nullptr);
}

TEST(Gguf, TensorsOutliveTheFile) {
  TemporaryFolder folder;
  write_file(folder / "a.gguf", rich_gguf().text());
  Tensor tensor;
  {
    const GgufFile f = GgufFile::open(folder / "a.gguf");
    tensor = *f.find("matrix");
    f.release_pages();
  }
  EXPECT_EQ(tensor.f32()[4], 4.0f);
}

TEST(Gguf, EmptyFileOfNothingIsFine) {
  const GgufFile f = parse_gguf(Bytes().header(0, 0).text());
  EXPECT_TRUE(f.tensors().empty() && f.metadata().empty());
}

TEST(Gguf, UnalignedDataAreCopied) {
  Bytes b;
  b.header(1, 1).key("general.alignment", 4).u32(1).tensor("x", {2}, 0, 0);
  ASSERT_NE(b.text().size() % 4, 0u);
  b.number(1.0f).number(2.0f);
  const GgufFile f = parse_gguf(b.text());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f.tensors()[0].bytes.data()) % 4, 0u);
  EXPECT_EQ(f.tensors()[0].f32()[1], 2.0f);
}

void expect_same(const GgufFile& a, const GgufFile& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor &x = a.tensors()[i], &y = b.tensors()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.type, y.type);
    EXPECT_EQ(x.shape, y.shape);
    ASSERT_EQ(x.bytes.size(), y.bytes.size());
    EXPECT_TRUE(std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin())) << x.name;
  }
}

TEST(Gguf, WrittenFileIsTheSameByteForByte) {
  TemporaryFolder folder;
  const std::string original = rich_gguf().pad().text();
  const GgufFile f = parse_gguf(original);
  write_gguf(folder / "b.gguf", f.metadata(), f.tensors());
  EXPECT_EQ(read_file(folder / "b.gguf"), original);
  EXPECT_EQ(folder.files(), 1u);
  expect_same(GgufFile::open(folder / "b.gguf"), f);
}

TEST(Gguf, AlignmentOfTheMetadataIsKept) {
  TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3};
  const Tensor x{"x", DType::f32, {3}, std::as_bytes(std::span(values)), nullptr};
  Tensor y = x;
  y.name = "y";
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    write_gguf(folder / "a.gguf", {{"general.alignment", alignment}}, {x, y});
    const GgufFile f = GgufFile::open(folder / "a.gguf");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(f.find("y")->bytes.data()) % alignment, 0u);
    EXPECT_EQ(f.find("y")->f32()[2], 3.0f);
  }
}

TEST(Gguf, WriterRefuses) {
  TemporaryFolder folder;
  const auto path = folder / "a.gguf";
  const std::vector<float> values(4);
  const Tensor x{"x", DType::f32, {4}, std::as_bytes(std::span(values)), nullptr};
  const auto changed = [&](auto change) {
    Tensor t = x;
    change(t);
    return std::vector<Tensor>{t};
  };
  const auto usage = ErrorCode::usage;
  expect_error([&] { write_gguf(path, {}, {x, x}); }, usage, {"a.gguf", "tensor x", "twice"});
  expect_error([&] { write_gguf(path, {{"k", true}, {"k", false}}, {}); }, usage, {"key k", "twice"});
  expect_error([&] { write_gguf(path, {}, changed([](Tensor& t) { t.name = "\xff"; })); }, usage, {"\\xff", "UTF-8"});
  expect_error(
      [&] {
        write_gguf(path, {{"general.alignment", uint32_t{24}}}, {});
      },
      usage, {"general.alignment", "power of two"});
  expect_error([&] { write_gguf(path, {{"k", std::shared_ptr<const GgufArray>{}}}, {}); }, usage, {"key k", "null"});
  expect_error([&] { write_gguf(path, {}, changed([](Tensor& t) { t.shape = {5}; })); }, ErrorCode::format,
               {"x", "16 bytes", "20"});
  expect_error([&] { write_gguf(path, {}, changed([](Tensor& t) {
                                  t.shape = {1, 1, 1, 1, 4};
                                })); },
               ErrorCode::unsupported, {"[1, 1, 1, 1, 4]"});
  expect_error([&] { write_gguf(path, {}, changed([](Tensor& t) { t.type = DType::u8, t.shape = {16}; })); },
               ErrorCode::unsupported, {"u8"});
  expect_error([&] { write_gguf(folder / "no" / "a.gguf", {}, {}); }, ErrorCode::io, {"a.gguf", "no does not exist"});
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace unchain::test
