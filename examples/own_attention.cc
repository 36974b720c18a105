// An attention of one's own in a trained model: P = max(A1 − λ·A2, 0), each row divided by its sum, so that negative
// weights are gone and rows sum to 1 again. How much does the text cost then? For softmax nothing changes.
//   example_own_attention MODEL TEXT
#include <algorithm>
#include <cstdio>
#include <vector>

#include "attention/maps.h"
#include "model/context.h"
#include "model/model_file.h"
#include "unchain/error.h"

// The kernel shows each panel of rows, head by head, before the product with the values. What is written into it
// counts.
class OnSimplex : public unchain::attention::Editor {
 public:
  void edit_maps(unchain::attention::MapPanel& panel) override {
    for (int head = 0; head < panel.heads; ++head) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        float* p = panel.positive_row(head, r);
        panel.signed_row(head, r, p);
        if (panel.noise) panel.lambda[head * panel.rows + r] = 0;  // the difference is taken already
        float sum = 0;
        for (int64_t j = 0; j < panel.keys; ++j) sum += p[j] = std::max(p[j], 0.0f);
        for (int64_t j = 0; j < panel.keys && sum > 0; ++j) p[j] /= sum;
      }
    }
  }
};

// Mean negative log-likelihood of the ids after the first, in nats.
double loss(unchain::model::Context& context, const std::vector<int32_t>& ids, const unchain::attention::Taps& taps) {
  context.truncate(0);
  context.extend(ids, -1, &taps);
  std::vector<double> nll(ids.size() - 1);
  context.nll(nll, {ids.data() + 1, nll.size()});
  double sum = 0;
  for (const double x : nll) sum += x;
  return sum / static_cast<double>(nll.size());
}

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: example_own_attention MODEL TEXT\n"), 2;
  try {
    const auto file = unchain::model::ModelFile::open(argv[1]);
    const auto ids = file.tokenizer()->encode_with_bos(argv[2]);
    if (ids.size() < 2) return std::fprintf(stderr, "the text has no token to predict; give a longer one\n"), 2;
    unchain::model::Context context(unchain::model::load(file, unchain::DType::f32), static_cast<int64_t>(ids.size()));
    OnSimplex own;
    const double before = loss(context, ids, {}), after = loss(context, ids, {{}, {&own}});
    std::printf("as trained:      %.4f nats a token\non the simplex:  %.4f\n", before, after);
    std::printf("difference:     %+.4f\n", after - before);
  } catch (const unchain::Error& error) {
    return std::fprintf(stderr, "%s error: %s\n", to_string(error.code()), error.what()), 1;
  }
}
