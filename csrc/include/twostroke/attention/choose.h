// Finds the largest of many scores, by a search of their bits, eight at a time.
#pragma once
#include <stdint.h>
#include <string.h>

namespace twostroke {

// The rank rises with the score; NaN has the highest.
inline uint32_t rank_of(float score) {
  uint32_t bits;
  memcpy(&bits, &score, 4);
  if (score != score) return 0xffffffffu;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Returns the rank of the count-th largest score. *equals is set to the number of scores of that rank among the `count` largest.
inline uint32_t least_rank(const float* scores, int64_t positions, int64_t count, int64_t* equals) {
  uint32_t prefix = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t counts[256] = {};
    for (int64_t i = 0; i < positions; ++i) {
      const uint32_t rank = rank_of(scores[i]);
      if ((rank & mask) == prefix) ++counts[rank >> shift & 255u];
    }
    uint32_t digit = 255;
    for (; counts[digit] < count; --digit) count -= counts[digit];
    prefix |= digit << shift;
    mask |= 255u << shift;
  }
  *equals = count;
  return prefix;
}

// Writes the numbers of the `count` largest of `positions` scores in rising order, then -1. Of equal scores the lower numbers are taken.
inline void choose_largest(const float* scores, int64_t positions, float* out, int64_t count) {
  int64_t made = 0, equals = positions;
  const uint32_t least = positions <= count ? 0 : least_rank(scores, positions, count, &equals);
  for (int64_t i = 0; i < positions && made < count; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    if (rank > least || (rank == least && equals-- > 0)) out[made++] = static_cast<float>(i);
  }
  for (; made < count; ++made) out[made] = -1.0f;
}

}  // namespace twostroke
