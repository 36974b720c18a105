// The real model files: read as the table of types says, written again byte for byte, decoded fast enough.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/thread.h"
#include "formats/convert.h"
#include "formats/gguf.h"
#include "support/pretrained.h"

namespace unchain::test {
namespace {

using formats::GgufFile;

class PretrainedFormats : public Pretrained {};

void expect_round_trip(const std::filesystem::path& path) {
  TemporaryFolder folder;
  const GgufFile original = GgufFile::open(path);
  formats::write_gguf(folder / "copy.gguf", original.metadata(), original.tensors());
  const GgufFile copy = GgufFile::open(folder / "copy.gguf");
  EXPECT_TRUE(copy.version() == 3);
  ASSERT_EQ(copy.metadata().size(), original.metadata().size());
  ASSERT_EQ(copy.tensors().size(), original.tensors().size());
  for (size_t i = 0; i < copy.tensors().size(); ++i) {
    const Tensor &a = original.tensors()[i], &b = copy.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << a.name;
  }
  EXPECT_EQ(read_file(path) == read_file(folder / "copy.gguf"), true) << "the whole file, metadata included";
}

TEST_F(PretrainedFormats, SmolLm2) {
  const GgufFile file = GgufFile::open(smollm2());
  EXPECT_EQ(file.string("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.block_count"), 30);
  EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->size(), 49152u);
  ASSERT_NE(file.find("token_embd.weight"), nullptr);
  EXPECT_EQ(file.find("token_embd.weight")->shape, (Shape{49152, 576}));
  expect_round_trip(smollm2());
}

TEST_F(PretrainedFormats, Gemma3) {
  const GgufFile file = GgufFile::open(gemma3());
  EXPECT_EQ(file.string("general.architecture"), "gemma3");
  std::set<DType> types;
  for (const Tensor& t : file.tensors()) {
    types.insert(t.type);
    EXPECT_TRUE(formats::can_decode(t.type)) << t.name;
  }
  EXPECT_TRUE(types.contains(DType::q4_k) && types.contains(DType::q6_k));
  expect_round_trip(gemma3());
}

// Every value of the real files is an ordinary number.
TEST_F(PretrainedFormats, ValuesAreFinite) {
  for (const auto& path : {smollm2(), gemma3()}) {
    const GgufFile file = GgufFile::open(path);
    for (const Tensor& t : file.tensors()) {
      std::vector<float> values(static_cast<size_t>(t.elements()));
      const int64_t row = t.shape.back();
      parallel_ranges(t.elements() / row, 1, [&](int64_t begin, int64_t end) {
        formats::decode(t, begin * row, (end - begin) * row, values.data() + begin * row);
      });
      double largest = 0;
      for (const float v : values) largest = std::max(largest, std::fabs(static_cast<double>(v)));
      EXPECT_TRUE(largest > 0 && largest < 1e4) << path << " " << t.name << " " << largest;
    }
  }
}

}  // namespace
}  // namespace unchain::test
