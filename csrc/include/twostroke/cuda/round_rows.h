// Activations of whole groups of columns rounded to int8 by one warp: 127 is the largest magnitude of a group. A maximum and a sum of whole
// numbers are exact, so it is of no account which thread has what.
// Knows: simt.h. Must not know: where results go, products.
#pragma once
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr float kLeastMagnitude = 0x1p-120f, kMostMagnitude = 0x1.fffffep127f;
constexpr int32_t kWarpColumns = 4 * kWarp;  // that a warp loads at once, four of each thread

// One row of activations (columns), taken as zeros up to `padded`.
struct FloatRow {
  const float* x;
  int32_t columns, padded, group, groups;
  bool aligned;  // to 16 bytes

  TS_MEMBER_INLINE FloatRow(const float* row, int64_t of_columns, int64_t of_padded, int64_t of_group, int64_t of_groups)
      : x(row), columns(static_cast<int32_t>(of_columns)), padded(static_cast<int32_t>(of_padded)), group(static_cast<int32_t>(of_group)),
        groups(static_cast<int32_t>(of_groups)), aligned(reinterpret_cast<uint64_t>(row) % 16 == 0) {}

  // Columns k .. k + 3.
  TS_MEMBER_INLINE Words4 four(int32_t k) const {
    if (aligned && k + 4 <= columns) return load16(x + k);
    Words4 found = {0, 0, 0, 0};
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i)
      if (k + i < columns) found[i] = bits_of(x[k + i]);
    return found;
  }
};

TS_DEVICE_INLINE uint32_t larger_bits(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Four floats in one word of int8.
TS_DEVICE_INLINE uint32_t rounded(Words4 floats, float inverse, bool usable) {
  uint32_t found = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) {
    const float scaled = usable ? float_of(floats[i]) * inverse : 0.0f;
    found |= ((bits_of(scaled + kRounder) - 0x4b400000u) & 255) << (8 * i);
  }
  return found;
}

// Groups first .. first + kGroups - 1, of at most kQuads * 128 columns. to.word(k / 4, word) gets four columns, to.group(group, scale,
// correction) what belongs to a group. Every thread of the warp calls it.
template <int kGroups, int kQuads, class To>
TS_DEVICE_INLINE void round_groups(const FloatRow& row, int32_t first, To& to) {
  Words4 floats[kGroups][kQuads];
  uint32_t most[kGroups];
  int32_t totals[kGroups];
  const int32_t lane = warp_lane();
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g) {
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) {
      const int32_t at = 4 * lane + kWarpColumns * i, k = (first + g) * row.group + at;
      floats[g][i] = at < row.group ? row.four(k) : Words4{0, 0, 0, 0};
    }
  }
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g) {
    most[g] = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) {
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) most[g] = larger_bits(most[g], floats[g][i][j] & 0x7fffffffu);
    }
  }
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    TS_EVERY_LANE
    for (int g = 0; g < kGroups; ++g) most[g] = larger_bits(most[g], shuffle_across(most[g], mask));
  }
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g) {
    const float largest = float_of(most[g]);
    const bool usable = largest >= kLeastMagnitude && largest <= kMostMagnitude;
    const float inverse = usable ? 127.0f / largest : 0.0f;
    totals[g] = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) {
      const int32_t at = 4 * lane + kWarpColumns * i, k = (first + g) * row.group + at;
      const uint32_t word = rounded(floats[g][i], inverse, usable);
      totals[g] = dot4(0x01010101u, static_cast<int32_t>(word), totals[g]);
      if (at < row.group && k < row.padded) to.word(k / 4, word);
    }
  }
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    TS_EVERY_LANE
    for (int g = 0; g < kGroups; ++g) totals[g] += static_cast<int32_t>(shuffle_across(static_cast<uint32_t>(totals[g]), mask));
  }
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g)
    if (lane == g && first + g < row.groups) to.group(first + g, float_of(most[g]) / 127.0f, -128 * totals[g]);
}

// One group of any size: its columns are loaded twice.
template <class To>
TS_DEVICE_INLINE void round_wide_group(const FloatRow& row, int32_t group, To& to) {
  const int32_t first = group * row.group, end = first + row.group < row.padded ? first + row.group : row.padded;
  uint32_t most = 0;
  for (int32_t k = first + 4 * warp_lane(); k < end; k += kWarpColumns) {
    const Words4 four = row.four(k);
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) most = larger_bits(most, four[j] & 0x7fffffffu);
  }
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) most = larger_bits(most, shuffle_across(most, mask));
  const float largest = float_of(most);
  const bool usable = largest >= kLeastMagnitude && largest <= kMostMagnitude;
  const float inverse = usable ? 127.0f / largest : 0.0f;
  int32_t total = 0;
  for (int32_t k = first + 4 * warp_lane(); k < end; k += kWarpColumns) {
    const uint32_t word = rounded(row.four(k), inverse, usable);
    total = dot4(0x01010101u, static_cast<int32_t>(word), total);
    to.word(k / 4, word);
  }
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) total += static_cast<int32_t>(shuffle_across(static_cast<uint32_t>(total), mask));
  if (warp_lane() == 0) to.group(group, largest / 127.0f, -128 * total);
}

// The row's groups, some at a time: warp `first` of `warps`. Those of one warp are loaded together, as many as registers hold:
// groups_at_once.
template <class To>
TS_DEVICE_INLINE void round_row(const FloatRow& row, int32_t first, int32_t warps, To& to) {
  const int32_t at_once = groups_at_once(row.group);
  for (int32_t g = at_once * first; g < row.groups; g += at_once * warps) {
    if (at_once == 4) round_groups<4, 1>(row, g, to);
    else if (at_once == 2) round_groups<2, 2>(row, g, to);
    else round_wide_group(row, g, to);
  }
}

}  // namespace cuda
}  // namespace twostroke
