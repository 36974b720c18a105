#include "support/ngram.h"

#include <algorithm>
#include <cmath>

namespace unchain::test {
namespace {

uint64_t key(std::span<const int32_t> pieces) {
  uint64_t result = 0;
  for (const int32_t piece : pieces) result = result << 21 | static_cast<uint64_t>(piece);
  return result;
}

}  // namespace

NGram::NGram(int64_t vocabulary, size_t order, double discount)
    : vocabulary_(static_cast<double>(vocabulary)), discount_(discount), histories_(order), counts_(order) {}

void NGram::add(std::span<const int32_t> document) {
  for (size_t i = 1; i < document.size(); ++i) {
    for (size_t n = 0; n < histories_.size() && n <= i; ++n) {
      Followers& followers = histories_[n][key(document.subspan(i - n, n))];
      ++followers.tokens;
      followers.kinds += counts_[n][key(document.subspan(i - n, n + 1))]++ == 0;
    }
  }
}

double NGram::probability(std::span<const int32_t> history, int32_t next) const {
  double p = 1 / vocabulary_;
  for (size_t n = 0; n < histories_.size() && n <= history.size(); ++n) {
    const auto followers = histories_[n].find(key(history.last(n)));
    if (followers == histories_[n].end()) break;  // nor was a longer one seen
    const auto tokens = static_cast<double>(followers->second.tokens);
    const auto found = counts_[n].find(key(history.last(n)) << 21 | static_cast<uint64_t>(next));
    const double count = found == counts_[n].end() ? 0 : static_cast<double>(found->second);
    p = (std::max(count - discount_, 0.0) + discount_ * static_cast<double>(followers->second.kinds) * p) / tokens;
  }
  return p;
}

double NGram::nats(std::span<const int32_t> document) const {
  double sum = 0;
  for (size_t i = 1; i < document.size(); ++i) sum -= std::log(probability(document.first(i), document[i]));
  return sum;
}

}  // namespace unchain::test
