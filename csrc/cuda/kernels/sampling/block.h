// What all kThreads threads of a block find out together. Sums are of whole numbers, so it does not matter in which order threads add.
// Knows: simt.h. Must not know: logits.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/simt.h"

namespace twostroke {
namespace cuda {

constexpr int kBlockWarps = kThreads / kWarp;

TS_SHARED(uint64_t, of_warps, kBlockWarps);

// What each warp has, to all threads: `join` of the values of all warps.
template <class Join>
TS_DEVICE_INLINE uint64_t join_warps(uint64_t of_warp, Join join) {
  barrier();  // all have read what was here before
  if (warp_lane() == 0) of_warps[warp_index()] = of_warp;
  barrier();
  uint64_t joined = of_warps[0];
  for (int warp = 1; warp < kBlockWarps; ++warp) joined = join(joined, of_warps[warp]);
  return joined;
}

// The sum, or the largest, of what all threads give.
TS_DEVICE_INLINE uint64_t block_sum(uint64_t own) {
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) own += shuffle64(own, warp_lane() ^ mask);
  return join_warps(own, [](uint64_t a, uint64_t b) { return a + b; });
}

TS_DEVICE_INLINE uint64_t block_most(uint64_t own) {
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    const uint64_t other = shuffle64(own, warp_lane() ^ mask);
    own = other > own ? other : own;
  }
  return join_warps(own, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

// The sum of what the threads before this one give and of its own.
TS_DEVICE_INLINE uint64_t block_sum_up_to(uint64_t own) {
  const int32_t lane = warp_lane();
  for (int32_t back = 1; back < kWarp; back *= 2) {
    const uint64_t other = shuffle64(own, lane >= back ? lane - back : lane);
    own += lane >= back ? other : 0;
  }
  barrier();
  if (lane == kWarp - 1) of_warps[warp_index()] = own;
  barrier();
  for (int warp = 0; warp < warp_index(); ++warp) own += of_warps[warp];
  return own;
}

TS_SHARED(uint64_t, room, kMostListed);

// Puts `count` keys into `room` in falling order, zeros behind them; how many there are then, a power of two.
TS_DEVICE_INLINE int32_t sort_room(const uint64_t* keys, int32_t count) {
  int32_t size = kWarp;
  while (size < count) size *= 2;
  for (int32_t i = thread_index(); i < size; i += kThreads) room[i] = i < count ? keys[i] : 0;
  barrier();
  for (int32_t run = 2; run <= size; run *= 2) {
    for (int32_t step = run / 2; step > 0; step /= 2) {
      for (int32_t pair = thread_index(); pair < size / 2; pair += kThreads) {
        const int32_t left = (pair & ~(step - 1)) * 2 + (pair & (step - 1)), right = left + step;
        const uint64_t a = room[left], b = room[right];
        if (a < b ? (left & run) == 0 : (left & run) != 0) {
          room[left] = b;
          room[right] = a;
        }
      }
      barrier();
    }
  }
  return size;
}

constexpr int kDigitBits = 3, kDigits = 1 << kDigitBits, kKeyBits = 66;  // of find_key; a whole number of digits

// The key at which the measure, added up from the largest key on, first reaches `target`: 1 to the whole sum. Goes through a whole row
// for each digit. Every thread has the key.
template <class Key, class Measure>
TS_DEVICE_INLINE uint64_t find_key(int64_t count, uint64_t target, Key key, Measure measure) {
  const int32_t thread = thread_index();
  uint64_t found = 0;
  for (int shift = kKeyBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    uint64_t sums[kDigits] = {};
    for (int64_t i = thread; i < count; i += kThreads) {
      const uint64_t own = key(i) >> shift;
      if (own / kDigits != found) continue;
      const uint64_t size = measure(i);
      TS_EVERY_LANE
      for (uint64_t digit = 0; digit < kDigits; ++digit) sums[digit] += own % kDigits == digit ? size : 0;
    }
    uint64_t at = 0;  // the digit
    bool is_found = false;
    TS_EVERY_LANE
    for (int i = 0; i < kDigits; ++i) {
      const uint64_t sum = block_sum(sums[kDigits - 1 - i]);
      const bool reached = sum >= target || i == kDigits - 1;
      if (!is_found && reached) at = static_cast<uint64_t>(kDigits - 1 - i);
      is_found = is_found || reached;
      if (!is_found) target -= sum;
    }
    found = found * kDigits + at;
  }
  return found;
}

}  // namespace cuda
}  // namespace twostroke
