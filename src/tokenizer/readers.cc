#include "tokenizer/readers.h"

#include "base/check.h"
#include "formats/text.h"
#include "tokenizer/pretokenizer.h"

namespace unchain::tokenizer {
namespace {

const KnownPretokenizer& demand(const std::string& wanted) {
  const KnownPretokenizer* known = find_pretokenizer(wanted);
  if (known == nullptr) {
    fail(ErrorCode::usage, "pre-tokenizer '{}' is unknown; known are {}", formats::printable(wanted),
         pretokenizer_names());
  }
  return *known;
}

}  // namespace

void choose_pretokenizer(Vocabulary& vocabulary, const std::string& name, const std::string& wanted) {
  const KnownPretokenizer* known = wanted.empty() ? find_pretokenizer(name) : &demand(wanted);
  if (known == nullptr) {
    vocabulary.warnings.push_back(fmt::format(
        "{}: {}; gpt2 is used instead, so token ids may differ from those the model was trained on. Pass another with "
        "--pretokenizer NAME; known are {}",
        vocabulary.name,
        name.empty() ? "the file names no pre-tokenizer (tokenizer.ggml.pre)"
                     : "pre-tokenizer '" + formats::printable(name) + "' is unknown",
        pretokenizer_names()));
    known = find_pretokenizer("gpt2");
  }
  vocabulary.pretokenizer = known->names[0];
  vocabulary.patterns.assign(known->patterns.begin(), known->patterns.end());
  vocabulary.whole_words = known->whole_words;
  vocabulary.add_bos = known->add_bos;
}

void ignore_pretokenizer(Vocabulary& vocabulary, const std::string& wanted) {
  if (wanted.empty()) return;
  demand(wanted);
  vocabulary.warnings.push_back(fmt::format(
      "{}: a SentencePiece vocabulary has no pre-tokenizer; --pretokenizer {} is ignored", vocabulary.name, wanted));
}

std::string eos_not_added(const std::string& where) {
  return where + ": the file asks for an end token after each text; none is added";
}

}  // namespace unchain::tokenizer
