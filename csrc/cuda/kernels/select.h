// Order among tokens without a sort: each has a key, and find_key goes through the key's digits from the highest on.
// Sums are of whole numbers, so it does not matter in which order threads add.
// Knows: simt.h. Must not know: logits' meaning, requests.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits;
constexpr int kShares = kThreads / kDigits;  // threads that add up one digit

TS_SHARED(uint64_t, digit_sums, kDigits* kThreads);  // of each thread, so that no two threads write one element
TS_SHARED(uint64_t, share_sums, kThreads);
TS_SHARED(uint64_t, whole_sums, kDigits);

// Every thread has the sum of what all threads give.
TS_DEVICE_INLINE uint64_t block_sum(uint64_t own) {
  share_sums[thread_index()] = own;
  barrier();
  if (thread_index() < kDigits) {
    uint64_t sum = 0;
    for (int i = 0; i < kShares; ++i) sum += share_sums[thread_index() * kShares + i];
    whole_sums[thread_index()] = sum;
  }
  barrier();
  uint64_t sum = 0;
  for (int i = 0; i < kDigits; ++i) sum += whole_sums[i];
  barrier();
  return sum;
}

// The key at which the measure, added up from the largest key on, first reaches `target`: 1 to the whole sum. Keys are of `bits` bits
// (a multiple of kDigitBits), and no two are equal. Every thread has it.
template <class Key, class Measure>
TS_DEVICE_INLINE uint64_t find_key(int64_t count, int bits, uint64_t target, Key key, Measure measure) {
  const int32_t thread = thread_index();
  uint64_t found = 0;
  for (int shift = bits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int digit = 0; digit < kDigits; ++digit) digit_sums[digit * kThreads + thread] = 0;
    for (int64_t i = thread; i < count; i += kThreads) {
      const uint64_t own = key(i) >> shift;
      if (own / kDigits != found) continue;
      const int64_t at = static_cast<int64_t>(own % kDigits) * kThreads + thread;
      digit_sums[at] = digit_sums[at] + measure(i);
    }
    barrier();
    uint64_t sum = 0;
    for (int i = 0; i < kDigits; ++i) sum += digit_sums[thread * kDigits + i];
    share_sums[thread] = sum;
    barrier();
    if (thread < kDigits) {
      sum = 0;
      for (int i = 0; i < kShares; ++i) sum += share_sums[thread * kShares + i];
      whole_sums[thread] = sum;
    }
    barrier();
    int digit = kDigits - 1;
    for (; digit > 0 && whole_sums[digit] < target; --digit) target -= whole_sums[digit];
    found = found * kDigits + static_cast<uint64_t>(digit);
    barrier();
  }
  return found;
}

// Larger for a larger number, equal for 0 and -0, the largest for NaN.
TS_DEVICE_INLINE uint32_t rank_of(float logit) {
  if (logit != logit) return 0xffffffffu;
  const uint32_t bits = bits_of(logit + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Bits of a token's number among `count`, up to a whole digit.
TS_DEVICE_INLINE int token_bits(int64_t count) {
  int bits = kDigitBits;
  while ((count - 1) >> bits) bits += kDigitBits;
  return bits;
}

// Keys of tokens by falling logit, then by rising number; and by rising number alone.
struct Order {
  const float* logits;
  int bits;

  __attribute__((always_inline)) uint64_t number(int64_t token) const { return (uint64_t{1} << bits) - 1 - static_cast<uint64_t>(token); }
  __attribute__((always_inline)) uint64_t key(int64_t token) const { return static_cast<uint64_t>(rank_of(logits[token])) << bits | number(token); }
  __attribute__((always_inline)) int64_t token(uint64_t key) const { return static_cast<int64_t>(number(0) - (key & number(0))); }
};

}  // namespace cuda
}  // namespace twostroke
