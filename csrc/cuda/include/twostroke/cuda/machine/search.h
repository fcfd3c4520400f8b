// The largest values of a long row of floats, by a block that reads the whole row three times to find a rank, and once more to find the
// place.
#pragma once
#include "twostroke/cuda/machine/block.h"

namespace twostroke {
namespace cuda {

// Calls visit(place, value) for all values of a row, with several loads at once.
template <class Visit>
TS_DEVICE_INLINE void over_row(const float* values, int64_t count, Visit visit) {
  constexpr int kAtOnce = 4;
  TS_ONE_BY_ONE
  for (int64_t first = thread_index(); first < count; first += kThreads * kAtOnce) {
    float found[kAtOnce];
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) found[i] = first + i * kThreads < count ? values[first + i * kThreads] : 0.0f;
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < count) visit(first + i * kThreads, found[i]);
  }
}

// The key at which the running sum of the measure, from the largest key on, first reaches `target`, which is in the range from 1 to the
// whole sum. Every thread gets it. rank: returns a larger number for a larger value. find_key overwrites `room`.
template <class Rank, class Measure>
TS_DEVICE_INLINE uint64_t find_key(const float* values, int64_t count, uint64_t target, Rank rank, Measure measure) {
  constexpr int kDigits = kRoom, kDigitBits = 11, kRankBits = 32;
  static_assert(kDigits == 1 << kDigitBits, "a digit has a place in the room");
  uint32_t least = 0;
  TS_ONE_BY_ONE
  for (int above = kRankBits; above > 0; above -= kDigitBits) {
    const int shift = above > kDigitBits ? above - kDigitBits : 0;
    const uint64_t mask = (uint64_t{1} << (above - shift)) - 1;
    barrier();  // after this, all threads have read the earlier contents of the room
    TS_ONE_BY_ONE
    for (int32_t i = thread_index(); i < kDigits; i += kThreads) put_room(i, 0);
    barrier();
    over_row(values, count, [&](int64_t, float value) {
      const uint64_t own = rank(value);
      if (own >> above == static_cast<uint64_t>(least) >> above) add_to_room(static_cast<int64_t>(own >> shift & mask), measure(value));
    });
    barrier();
    const Reached digit = reach(static_cast<int64_t>(mask) + 1, target, [&](int64_t i) { return room_at(static_cast<int64_t>(mask) - i); });
    least |= (static_cast<uint32_t>(mask) - static_cast<uint32_t>(digit.place)) << shift;
    target = digit.left;
  }
  const Reached found = reach(count, target, [&](int64_t i) { return rank(values[i]) == least ? measure(values[i]) : 0; });
  return key_of(least, found.place);
}

}  // namespace cuda
}  // namespace twostroke
