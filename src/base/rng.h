// Random numbers from a counter: number n of stream s of seed k is a pure function of (k, s, n), so that results do not
// depend on how many threads or processes draw them. Philox4x32-10 of Random123.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <Random123/philox.h>

#include <cmath>
#include <cstdint>
#include <numbers>

namespace unchain {

// One stream of one seed. Copies continue independently from the same place. Not thread-safe: one object a thread.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  // 64 random bits.
  uint64_t bits() {
    if (used_ == 2) refill();
    return words_[used_++];
  }
  // Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Uniform among 0 … n − 1, exactly; 0 for n < 2.
  uint64_t below(uint64_t n) {
    if (n < 2) return 0;
    const uint64_t limit =
        UINT64_MAX - UINT64_MAX % n;  // a multiple of n: values from it on would favour small results
    uint64_t x = bits();
    while (x >= limit) x = bits();
    return x % n;
  }
  // Normal with mean 0 and standard deviation 1 (Box–Muller; two uniforms for each).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  void refill() {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    const r123::Philox4x32::ctr_type counter{{low(block_), high(block_), low(stream_), high(stream_)}};
    const r123::Philox4x32::key_type key{{low(seed_), high(seed_)}};
    const r123::Philox4x32::ctr_type out = r123::Philox4x32()(counter, key);
    words_[0] = out[0] | uint64_t{out[1]} << 32;
    words_[1] = out[2] | uint64_t{out[3]} << 32;
    used_ = 0;
    ++block_;
  }

  uint64_t seed_, stream_, block_ = 0;
  uint64_t words_[2] = {};
  int used_ = 2;
};

}  // namespace unchain
