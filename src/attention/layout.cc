#include "attention/layout.h"

#include "base/check.h"

namespace unchain::attention {
namespace {

void check_counts(int64_t heads, int64_t kv_heads) {
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
    fail(ErrorCode::shape, "attention: {} query heads cannot share {} key/value heads evenly", heads, kv_heads);
  }
}

void check_even(int64_t heads, int64_t kv_heads) {
  check_counts(heads, kv_heads);
  if (heads % 2 != 0 || kv_heads % 2 != 0) {
    fail(ErrorCode::shape,
         "attention: {} query and {} key/value heads cannot be halved into pairs: both must be even, or use the "
         "accounting \"added\"",
         heads, kv_heads);
  }
}

template <class Pair>
Layout make(int64_t query_heads, int64_t key_heads, int64_t value_heads, int64_t outputs, const Pair& pair) {
  Layout layout{static_cast<int>(query_heads), static_cast<int>(key_heads), static_cast<int>(value_heads), {}};
  for (int64_t o = 0; o < outputs; ++o) layout.outputs.push_back(pair(static_cast<int>(o)));
  return layout;
}

// The key or value head that head a of `queries` reads.
int shared(int64_t a, int64_t keys, int64_t queries) {
  return static_cast<int>(a * keys / queries);
}

}  // namespace

Layout softmax_layout(int64_t h, int64_t g) {
  check_counts(h, g);
  return make(h, g, g, h, [=](int o) { return HeadPair{o, shared(o, g, h), -1, -1, shared(o, g, h)}; });
}

Layout halves_layout(int64_t h, int64_t g) {
  check_even(h, g);
  return make(h, g, g / 2, h / 2, [=](int o) {
    const int second = o + static_cast<int>(h / 2);
    return HeadPair{o, shared(o, g, h), second, shared(second, g, h), shared(o, g, h)};
  });
}

Layout neighbours_layout(int64_t h, int64_t g) {
  check_even(h, g);
  return make(h, g, g / 2, h / 2, [=](int o) {
    const int first = 2 * o, second = first + 1;
    return HeadPair{first, shared(first, g, h), second, shared(second, g, h), shared(o, g, h)};
  });
}

Layout added_layout(int64_t h, int64_t g) {
  check_counts(h, g);
  return make(2 * h, 2 * g, g, h, [=](int o) {
    const int group = shared(o, g, h);
    return HeadPair{2 * o, 2 * group, 2 * o + 1, 2 * group + 1, group};
  });
}

Layout shared_key_layout(int64_t h, int64_t g) {
  check_counts(h, g);
  return make(2 * h, g, g, h, [=](int o) {
    const int group = shared(o, g, h);
    return HeadPair{2 * o, group, 2 * o + 1, group, group};
  });
}

Layout grouped_layout(int64_t h, int64_t g, int64_t ratio) {
  check_counts(h, g);
  if (ratio < 1 || h % ratio != 0)
    fail(ErrorCode::shape, "attention: {} heads are no whole number of groups of {} (\"ratio\")", h, ratio);
  const int64_t noise_heads = h / ratio, noise_keys = (g + ratio - 1) / ratio;
  return make(h + noise_heads, g + noise_keys, g, h, [=](int o) {
    const int64_t m = o / ratio;
    return HeadPair{o, shared(o, g, h), static_cast<int>(h + m),
                    static_cast<int>(g) + shared(m, noise_keys, noise_heads), shared(o, g, h)};
  });
}

}  // namespace unchain::attention
