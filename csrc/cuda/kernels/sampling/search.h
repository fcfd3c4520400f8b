// Going over a whole row, where no list of likely tokens is long enough: three times to find a rank, once more for a token.
// Knows: rows.h, block.h. Must not know: what is asked of a row.
#pragma once
#include "block.h"
#include "rows.h"

namespace twostroke {
namespace cuda {

// Calls visit(token, logit) for all tokens of a row, several loads at once.
template <class Visit>
TS_DEVICE_INLINE void over_row(const float* logits, int64_t count, Visit visit) {
  constexpr int kAtOnce = 4;
  TS_ONE_BY_ONE
  for (int64_t first = thread_index(); first < count; first += kThreads * kAtOnce) {
    float found[kAtOnce];
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) found[i] = first + i * kThreads < count ? logits[first + i * kThreads] : 0.0f;
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < count) visit(first + i * kThreads, found[i]);
  }
}

// The key at which the measure of logits, added up from the largest key on, first reaches `target`: 1 to the whole sum. Every thread has
// it. Uses `room`.
template <class Measure>
TS_DEVICE_INLINE uint64_t find_key(const float* logits, int64_t count, uint64_t target, Measure measure) {
  constexpr int kDigits = kMostListed, kDigitBits = 11, kRankBits = 32;
  static_assert(kDigits == 1 << kDigitBits, "a digit has a place in the room");
  uint32_t rank = 0;
  TS_ONE_BY_ONE
  for (int above = kRankBits; above > 0; above -= kDigitBits) {
    const int shift = above > kDigitBits ? above - kDigitBits : 0;
    const uint64_t mask = (uint64_t{1} << (above - shift)) - 1;
    barrier();  // all have read what was in the room
    TS_ONE_BY_ONE
    for (int32_t i = thread_index(); i < kDigits; i += kThreads) put_room(i, 0);
    barrier();
    over_row(logits, count, [&](int64_t, float logit) {
      const uint64_t own = rank_of(logit);
      if (own >> above == static_cast<uint64_t>(rank) >> above) add_to_room(static_cast<int64_t>(own >> shift & mask), measure(logit));
    });
    barrier();
    const Reached digit = reach(static_cast<int64_t>(mask) + 1, target, [&](int64_t i) { return room_at(static_cast<int64_t>(mask) - i); });
    rank |= (static_cast<uint32_t>(mask) - static_cast<uint32_t>(digit.place)) << shift;
    target = digit.left;
  }
  const Reached token = reach(count, target, [&](int64_t i) { return rank_of(logits[i]) == rank ? measure(logits[i]) : 0; });
  return key_of(rank, token.place);
}

}  // namespace cuda
}  // namespace twostroke
