// The models that come with the program (models/) predict texts that they were not trained on better than counting
// does: fewer bits a byte than a 3-gram model of the same pieces that has read the same training texts; and the best of
// them finds numbers that it has to look back for.
#include <algorithm>
#include <iostream>
#include <map>
#include <numbers>

#include "eval/choice.h"
#include "eval/needle.h"
#include "eval/perplexity.h"
#include "model/model_file.h"
#include "support/ngram.h"
#include "support/pretrained.h"
#include "text/token_file.h"

namespace unchain::test {
namespace {

namespace fs = std::filesystem;
using tokenizer::Tokenizer;

std::vector<fs::path> models() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(fs::path(UNCHAIN_SOURCE_DIR) / "models")) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

class PretrainedShipped : public testing::Test {
 protected:
  void SetUp() override { find_fetched(text_, "UNCHAIN_TEXT", "the texts of tools/get_text"); }
  // "bible" + ending and "pydoc" + ending, BOS in front of each.
  std::vector<std::vector<int32_t>> documents(const Tokenizer& tokenizer, const std::string& ending) const {
    std::vector<std::vector<int32_t>> result;
    for (const char* name : {"bible", "pydoc"}) {
      const fs::path path = text_ / (name + ending);
      const std::string text = read_file(path);
      if (text.empty()) throw std::runtime_error(path.string() + " is not there; tools/get_text makes it");
      result.push_back(tokenizer.encode_with_bos(text));
    }
    return result;
  }
  double held_out_bytes() const {
    return static_cast<double>(fs::file_size(text_ / "bible.valid.txt") + fs::file_size(text_ / "pydoc.valid.txt"));
  }
  double bits_per_byte_of_3gram(const Tokenizer& tokenizer) const {
    NGram model(tokenizer.size());
    for (const auto& document : documents(tokenizer, ".txt")) model.add(document);
    double nats = 0;
    for (const auto& document : documents(tokenizer, ".valid.txt")) nats += model.nats(document);
    return nats / (std::numbers::ln2 * held_out_bytes());
  }
  // Window after window, each as long as the model reads and from an empty context, so that its first tokens are
  // predicted from less than the 3-gram model has.
  double bits_per_byte(const fs::path& folder, const Tokenizer& tokenizer) const {
    const auto model = model::load(folder, DType::f32);
    eval::WindowOptions options;
    options.window = model->config.context;
    double nats = 0;
    for (const auto& document : documents(tokenizer, ".valid.txt")) {
      const std::vector<int32_t> text(document.begin() + 1, document.end());
      const auto result = eval::perplexity(model, nullptr, eval::cut_windows(text, tokenizer.bos, options));
      EXPECT_EQ(result.tokens_scored, static_cast<int64_t>(text.size()));
      nats += result.nll_nats * static_cast<double>(result.tokens_scored);
    }
    return nats / (std::numbers::ln2 * held_out_bytes());
  }

  fs::path text_;
};

// tools/get_text chooses passages whose last word is named in them before.
TEST_F(PretrainedShipped, LastWordsStandInTheirPassage) {
  const eval::ChoiceSet set = eval::read_choices(read_file(text_ / "last_words.jsonl"), "last_words.jsonl");
  EXPECT_TRUE(set.last_words);
  EXPECT_GE(set.items.size(), 100u);
  const auto lower = [](std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  for (const eval::ChoiceItem& item : set.items) {
    const std::string word = lower(item.choices[0]).substr(1);
    EXPECT_TRUE(std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c); })) << word;
    EXPECT_NE(lower(item.context).find(word), std::string::npos) << item.context << " | " << word;
  }
}

TEST_F(PretrainedShipped, PredictBetterThanCounting) {
  std::map<uint64_t, double> of_3gram;  // by vocabulary: the models mostly share one
  ASSERT_FALSE(models().empty());
  for (const fs::path& folder : models()) {
    SCOPED_TRACE(folder);
    const auto tokenizer = model::ModelFile::open(folder).tokenizer();
    ASSERT_TRUE(tokenizer->add_bos);
    const uint64_t vocabulary = text::hash_vocabulary(*tokenizer);
    if (!of_3gram.contains(vocabulary)) of_3gram[vocabulary] = bits_per_byte_of_3gram(*tokenizer);
    const double bits = bits_per_byte(folder, *tokenizer);
    std::cout << folder.filename().string() << ": " << bits << " bits a byte of the held-out texts, a 3-gram model "
              << of_3gram[vocabulary] << "\n";
    EXPECT_LT(bits, of_3gram[vocabulary]);
  }
}

// Four needles in 256 tokens, one asked: names and numbers that no training document had, at every depth.
TEST(Shipped, FindNeedles) {
  double best = 0, best_low = 0;
  for (const fs::path& folder : models()) {
    SCOPED_TRACE(folder);
    const auto tokenizer = model::ModelFile::open(folder).tokenizer();
    const auto model = model::load(folder, DType::f32);
    eval::NeedleOptions options;
    options.form = text::NeedleForm::pair;
    options.lengths = {256};
    options.depths = {0, 0.25, 0.5, 0.75, 1};
    options.needles = 4;
    options.samples = 40;
    const auto tasks = eval::plan_needles(*tokenizer, text::Haystack(), options);
    const eval::Proportion accuracy = eval::ask_needles(model, *tokenizer, options.form, tasks).accuracy;
    ASSERT_EQ(accuracy.asked, 200);
    std::cout << folder.filename().string() << ": " << accuracy.right << " of " << accuracy.asked << " needles\n";
    best = std::max(best, accuracy.value());
    best_low = std::max(best_low, eval::wilson_interval(accuracy).low);
  }
  EXPECT_GE(best, 0.6);
  EXPECT_GE(best_low, 0.5);
}

}  // namespace
}  // namespace unchain::test
