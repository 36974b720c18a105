// The real model files: read as the table of types says, written again byte for byte, decoded fast enough.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <set>

#include "base/thread.h"
#include "formats/convert.h"
#include "formats/gguf.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using formats::GgufFile;

class PretrainedFormats : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = ::getenv("UNCHAIN_MODELS");
    const char* ci = ::getenv("CI");
    if (!folder && ci && std::string(ci) == "true") FAIL() << "UNCHAIN_MODELS is not set";
    if (!folder) GTEST_SKIP() << "UNCHAIN_MODELS is not set: a folder with the two GGUF files";
    folder_ = folder;
  }
  std::filesystem::path folder_;
};

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
  const auto path = folder_ / "SmolLM2-135M-Instruct.Q4_1.gguf";
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.string("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.block_count"), 30);
  EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->size(), 49152u);
  ASSERT_NE(file.find("token_embd.weight"), nullptr);
  EXPECT_EQ(file.find("token_embd.weight")->shape, (Shape{49152, 576}));
  expect_round_trip(path);
}

TEST_F(PretrainedFormats, Gemma3) {
  const auto path = folder_ / "gemma-3-270m-q4_k_m.gguf";
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.string("general.architecture"), "gemma3");
  std::set<DType> types;
  for (const Tensor& t : file.tensors()) {
    types.insert(t.type);
    EXPECT_TRUE(formats::can_decode(t.type)) << t.name;
  }
  EXPECT_TRUE(types.contains(DType::q4_k) && types.contains(DType::q6_k));
  expect_round_trip(path);
}

// Every value of the real files is an ordinary number.
TEST_F(PretrainedFormats, ValuesAreFinite) {
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    const GgufFile file = GgufFile::open(folder_ / name);
    for (const Tensor& t : file.tensors()) {
      std::vector<float> values(static_cast<size_t>(t.elements()));
      const int64_t row = t.shape.back();
      parallel_ranges(t.elements() / row, 1, [&](int64_t begin, int64_t end) {
        formats::decode(t, begin * row, (end - begin) * row, values.data() + begin * row);
      });
      double largest = 0;
      for (const float v : values) largest = std::max(largest, std::fabs(static_cast<double>(v)));
      EXPECT_TRUE(largest > 0 && largest < 1e4) << name << " " << t.name << " " << largest;
    }
  }
}

}  // namespace
}  // namespace unchain::test
