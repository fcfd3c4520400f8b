// Keys that order numbers as whole numbers: a larger value has a larger key. Of equal values, the one with the lower number has the larger
// key, so no two keys are equal.
#pragma once
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

// A larger number gives a larger result; 0 and -0 give the same one, and NaN the largest. It is never 0.
TS_DEVICE_INLINE uint32_t rank_of(float value) {
  if (value != value) return 0xffffffffu;
  const uint32_t bits = bits_of(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

TS_DEVICE_INLINE uint64_t key_of(uint32_t rank, int64_t number) { return static_cast<uint64_t>(rank) << 32 | (0xffffffffu - static_cast<uint32_t>(number)); }
TS_DEVICE_INLINE uint32_t rank_in(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
TS_DEVICE_INLINE uint32_t number_in(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }

// The sum, or the largest, of the numbers of a warp's threads.
TS_DEVICE_INLINE uint64_t warp_sum(uint64_t own) {
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) own += shuffle64(own, warp_lane() ^ mask);
  return own;
}
TS_DEVICE_INLINE uint64_t warp_most(uint64_t own) {
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    const uint64_t other = shuffle64(own, warp_lane() ^ mask);
    own = other > own ? other : own;
  }
  return own;
}

}  // namespace cuda
}  // namespace twostroke
