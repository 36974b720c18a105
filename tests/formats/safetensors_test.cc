#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/convert.h"
#include "support/damage.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using formats::SafetensorsFile;
using formats::write_safetensors;
using formats::write_safetensors_folder;
constexpr auto kFormat = ErrorCode::format;
constexpr auto kUnsupported = ErrorCode::unsupported;
constexpr auto kIo = ErrorCode::io;

std::string with_header(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// Parses a copy in a heap block of exactly its size, so that the sanitizers see any step beyond it.
SafetensorsFile parse(const std::string& text) {
  std::shared_ptr<std::byte[]> copy(new std::byte[text.size()]);
  if (!text.empty()) std::memcpy(copy.get(), text.data(), text.size());
  return SafetensorsFile::parse({copy.get(), text.size()}, copy, "m.safetensors");
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

Tensor tensor_of(const std::string& name, DType type, Shape shape, const std::string& bytes) {
  auto owned = std::make_shared<std::string>(bytes);
  return {name, type, std::move(shape), std::as_bytes(std::span(owned->data(), owned->size())), owned};
}

std::string bytes_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()};
}

std::vector<Tensor> some_tensors() {
  return {tensor_of("z", DType::u8, {3}, "abc"),
          tensor_of("b.weight", DType::bf16, {2, 3}, "abcdefghijkl"),
          tensor_of("a.weight", DType::f32, {2}, "12345678"),
          tensor_of("scalar", DType::f64, {}, "ABCDEFGH"),
          tensor_of("none", DType::f16, {0, 7}, ""),
          tensor_of("flag", DType::boolean, {1}, std::string(1, '\1'))};
}

void expect_same(const SafetensorsFile& file, const std::vector<Tensor>& tensors) {
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const Tensor& t : tensors) {
    const Tensor* found = file.find(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    EXPECT_EQ(found->type, t.type);
    EXPECT_EQ(found->shape, t.shape);
    EXPECT_EQ(bytes_of(*found), bytes_of(t));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->bytes.data()) % static_cast<size_t>(info(t.type).bytes), 0u) << t.name;
  }
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", some_tensors(), {{"format", "pt"}, {"é", ""}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a.safetensors");
  expect_same(file, some_tensors());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors()[0].name, "a.weight");
  EXPECT_EQ(file.find("absent"), nullptr);
  const std::string bytes = read_file(folder / "a.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Safetensors, NoTensorsAreFine) {
  TemporaryFolder folder;
  EXPECT_TRUE(parse(with_header("{}")).tensors().empty());
  EXPECT_TRUE(parse(with_header("{}   ")).tensors().empty());
  write_safetensors(folder / "a.safetensors", {});
  EXPECT_TRUE(SafetensorsFile::open(folder / "a.safetensors").tensors().empty());
}

TEST(Safetensors, MisalignedDataAreCopied) {
  const float x = 1.25f;
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string data = "u";
    data.append(reinterpret_cast<const char*>(&x), 4);
    std::string header = "{";
    header += entry("a", "U8", "[1]", "[0,1]") + ",";
    header += entry("x", "F32", "[1]", "[1,5]") + "}" + std::string(shift, ' ');
    const SafetensorsFile file = parse(with_header(header, data));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.find("x")->bytes.data()) % 4, 0u);
    EXPECT_EQ(file.find("x")->f32()[0], x);
  }
}

void expect_bad(const std::string& text, ErrorCode code, std::initializer_list<std::string> parts) {
  expect_error([&] { parse(text); }, code, {"m.safetensors: "});
  expect_error([&] { parse(text); }, code, parts);
}

void expect_bad_header(const std::string& header, size_t data, ErrorCode code,
                       std::initializer_list<std::string> parts) {
  expect_bad(with_header(header, std::string(data, 'x')), code, parts);
}

TEST(SafetensorsBad, Lengths) {
  expect_bad("", kFormat, {"0 bytes", "at least 8"});
  expect_bad("1234567", kFormat, {"7 bytes"});
  expect_bad(std::string(8, '\xff') + "{}", kFormat, {"18446744073709551615", "100000000"});
  expect_bad(std::string("\x40\0\0\0\0\0\0\0{}", 10), kFormat, {"header has 64 bytes", "10 bytes", "incomplete"});
  expect_bad(std::string(8, '\0'), kFormat, {"JSON"});
  expect_bad(std::string("GGUF\3\0\0\0\0\0", 10), kFormat, {"GGUF"});
  expect_bad("version https://git-lfs.github.com/spec/v1", kFormat, {"git lfs pull"});
}

TEST(SafetensorsBad, Json) {
  expect_bad_header("{\"a\":", 0, kFormat, {"header", "not valid JSON", "ends too early, after 5 bytes"});
  expect_bad_header("{\"\xff\":1}", 0, kFormat, {"not valid JSON at byte 3 of 7"});
  expect_bad_header("{\"a\":1e999}", 0, kFormat, {"not valid JSON"});
  expect_bad_header("{\"a\":" + std::string(1000000, '['), 0, kFormat, {"nested more than 4"});
  std::string objects = "{";
  for (int i = 0; i < 100000; ++i) objects += "\"a\":{";
  expect_bad_header(objects, 0, kFormat, {"nested more than 4"});
  const std::string a = entry("a", "U8", "[1]", "[0,1]");
  expect_bad_header("{" + a + "," + a + "}", 1, kFormat, {"\"a\" appears twice"});
  expect_bad_header(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, kFormat,
                    {"\"dtype\" appears twice"});
  expect_bad_header(R"({"a":3})", 0, kFormat, {"tensor a", "number", "object"});
  expect_bad_header(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, kFormat, {"tensor a", "no dtype"});
  expect_bad_header(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, kFormat, {"dtype", "string"});
  expect_bad_header(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, kFormat, {"shape", "array"});
  expect_bad_header(R"({"__metadata__":{"a":1}})", 0, kFormat, {"__metadata__", "string"});
  expect_bad_header(R"({"__metadata__":[]})", 0, kFormat, {"__metadata__", "object"});
}

TEST(SafetensorsBad, Tensors) {
  const auto one = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return "{" + entry("a", type, shape, offsets) + "}";
  };
  expect_bad_header(one("F8_E4M3", "[1]", "[0,1]"), 1, kUnsupported, {"tensor a", "F8_E4M3", "F32"});
  expect_bad_header(one("U64", "[1]", "[0,8]"), 8, kUnsupported, {"U64"});
  expect_bad_header(one("U8", "[-1]", "[0,1]"), 1, kFormat, {"tensor a", "shape", "-1"});
  expect_bad_header(one("U8", "[1.0]", "[0,1]"), 1, kFormat, {"1.0"});
  expect_bad_header(one("U8", "[\"1\"]", "[0,1]"), 1, kFormat, {"shape"});
  expect_bad_header(one("U8", "[[1]]", "[0,1]"), 1, kFormat, {"array"});
  expect_bad_header(one("U8", "[18446744073709551615]", "[0,1]"), 1, kFormat, {"18446744073709551615", "2^63"});
  expect_bad_header(one("U8", "[4294967296,4294967296]", "[0,1]"), 1, kFormat, {"[4294967296, 4294967296]"});
  expect_bad_header(one("F32", "[4611686018427387904]", "[0,0]"), 0, kFormat, {"more bytes"});
  expect_bad_header(one("U8", "[1]", "[0]"), 1, kFormat, {"data_offsets", "1 numbers"});
  expect_bad_header(one("U8", "[1]", "[1,0]"), 1, kFormat, {"backwards"});
  expect_bad_header(one("F32", "[1]", "[0,3]"), 3, kFormat, {"3 bytes", "needs 4"});
  expect_bad_header(one("F32", "[1]", "[0,4]"), 3, kFormat, {"tensor a", "0 to 4", "past the end", "incomplete"});
  expect_bad_header(one("U8", "[1]", "[9223372036854775806,9223372036854775807]"), 1, kFormat, {"past the end"});
  expect_bad_header(one("U8", "[1]", "[1,2]"), 2, kFormat, {"tensor a", "begin at 1", "expected 0", "hole"});
  expect_bad_header(one("U8", "[1]", "[0,1]"), 2, kFormat, {"end at byte 1 of 2"});
  expect_bad_header("{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[1,3]") + "}", 3, kFormat,
                    {"tensor b", "overlaps"});
}

// Whether it parses; if so, every tensor is used once.
bool survives(const std::string& text) {
  try {
    const SafetensorsFile f = parse(text);
    for (const Tensor& t : f.tensors()) {
      if (!formats::can_decode(t.type)) continue;
      std::vector<float> values(static_cast<size_t>(t.elements()));
      formats::decode(t, 0, t.elements(), values.data());
    }
    return true;
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("m.safetensors: ")) << e.what();
    EXPECT_TRUE(e.code() == kFormat || e.code() == kUnsupported) << e.what();
    return false;
  }
}

TEST(SafetensorsBad, CutsAndFlippedBits) {
  TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", some_tensors(), {{"format", "pt"}});
  const std::string good = read_file(folder / "a.safetensors");
  expect_cuts_refused(good, survives);
  expect_damage_survived(good, "0123456789[]{},:\"", survives);
}

TEST(SafetensorsBad, WriterRefuses) {
  TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  const Tensor x = tensor_of("x", DType::u8, {1}, "x");
  const auto usage = ErrorCode::usage;
  expect_error([&] { write_safetensors(path, {x, x}); }, usage, {"a.safetensors", "tensor x", "twice"});
  expect_error([&] { write_safetensors(path, {tensor_of("__metadata__", DType::u8, {1}, "x")}); }, usage,
               {"__metadata__"});
  expect_error([&] { write_safetensors(path, {tensor_of("\xff", DType::u8, {1}, "x")}); }, usage, {"\\xff"});
  expect_error([&] { write_safetensors(path, {x}, {{"k", "\xff"}}); }, usage, {"\"k\"", "UTF-8"});
  expect_error([&] { write_safetensors(path, {tensor_of("q", DType::q8_0, {32}, std::string(34, 'x'))}); },
               kUnsupported, {"tensor q", "q8_0"});
  expect_error([&] { write_safetensors(path, {tensor_of("x", DType::u8, {2}, "x")}); }, kFormat,
               {"tensor x", "1 bytes", "needs 2"});
  expect_error([&] { write_safetensors_folder(folder / "m", {x, x}); }, usage, {"tensor x", "twice"});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsFolder, SingleAndSharded) {
  TemporaryFolder folder;
  const std::string index = "model.safetensors.index.json";
  write_safetensors_folder(folder / "m", some_tensors(), {{"format", "pt"}});
  expect_same(SafetensorsFile::open_folder(folder / "m"), some_tensors());
  EXPECT_TRUE(std::filesystem::exists(folder / "m" / "model.safetensors"));
  // Sharded over the single file: the older one must not hide the shards.
  auto changed = some_tensors();
  changed[0] = tensor_of("z", DType::u8, {3}, "new");
  write_safetensors_folder(folder / "m", changed, {{"format", "pt"}}, 12);
  EXPECT_FALSE(std::filesystem::exists(folder / "m" / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "m" / "model-00001-of-00004.safetensors"));
  const SafetensorsFile file = SafetensorsFile::open_folder(folder / "m");
  expect_same(file, changed);
  EXPECT_EQ(file.tensors()[0].name, "a.weight");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  // And back.
  write_safetensors_folder(folder / "m", some_tensors());
  EXPECT_FALSE(std::filesystem::exists(folder / "m" / index));
  expect_same(SafetensorsFile::open_folder(folder / "m"), some_tensors());
  // No tensors at all.
  write_safetensors_folder(folder / "none", {});
  EXPECT_TRUE(SafetensorsFile::open_folder(folder / "none").tensors().empty());
}

TEST(SafetensorsFolder, Broken) {
  TemporaryFolder folder;
  const auto index = folder / "model.safetensors.index.json";
  const auto open = [&] { SafetensorsFile::open_folder(folder.path()); };
  const auto set_index = [&](const std::string& map) { write_file(index, "{\"weight_map\":" + map + "}"); };
  expect_error(open, kIo, {"holds neither model.safetensors nor model.safetensors.index.json"});
  expect_error([&] { SafetensorsFile::open_folder(folder / "absent"); }, kIo, {"absent", "no folder"});
  write_safetensors(folder / "one.safetensors", {tensor_of("a", DType::u8, {1}, "a")});
  write_safetensors(folder / "two.safetensors", {tensor_of("b", DType::u8, {1}, "b")});
  set_index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  EXPECT_NO_THROW(open());
  set_index(R"({"a":"one.safetensors","b":"three.safetensors"})");
  expect_error(open, kIo, {"three.safetensors", "missing", "incomplete"});
  set_index(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})");
  expect_error(open, kFormat, {"tensor c", "two.safetensors", "does not hold it"});
  set_index(R"({"b":"one.safetensors"})");
  expect_error(open, kFormat, {"one.safetensors", "tensor a", "does not name it"});
  set_index(R"({"a":"two.safetensors","b":"one.safetensors"})");
  expect_error(open, kFormat, {"tensor a", "lies in two.safetensors"});
  for (const char* outside : {"../one.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b"}) {
    set_index(std::string(R"({"a":")") + outside + "\"}");
    expect_error(open, kFormat, {"tensor a", "file in the same folder"});
  }
  set_index(R"({"a":1})");
  expect_error(open, kFormat, {"tensor a", "file in the same folder"});
  set_index("[]");
  expect_error(open, kFormat, {"weight_map"});
  write_file(index, "[1,2]");
  expect_error(open, kFormat, {"weight_map"});
  write_file(index, "{\"weight_map\":");
  expect_error(open, kFormat, {"index.json", "not valid JSON"});
  write_file(index, std::string(1000000, '['));
  expect_error(open, kFormat, {"nested"});
}

}  // namespace
}  // namespace unchain::test
