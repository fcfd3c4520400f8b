// One warp rounds activations of whole groups of columns to int8, so that the largest magnitude of a group becomes 127. A maximum and a sum
// of whole numbers are exact, so it does not matter which thread has which columns.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/products/rotate_four.h"

namespace twostroke {
namespace cuda {

constexpr float kLeastMagnitude = 0x1p-120f, kMostMagnitude = 0x1.fffffep127f;
constexpr int32_t kWarpColumns = 4 * kWarp;  // columns that a warp loads at once, four for each thread

// One row of activations (columns), with zeros up to `padded`.
struct FloatRow {
  const float* x;
  int32_t columns, padded, group, groups;
  bool aligned;  // whether the row is aligned to 16 bytes
  bool rotated;

  TS_MEMBER_INLINE FloatRow(const float* row, int64_t of_columns, int64_t of_padded, int64_t of_group, int64_t of_groups, bool is_rotated)
      : x(row), columns(static_cast<int32_t>(of_columns)), padded(static_cast<int32_t>(of_padded)), group(static_cast<int32_t>(of_group)),
        groups(static_cast<int32_t>(of_groups)), aligned(reinterpret_cast<uint64_t>(row) % 16 == 0),
        rotated(is_rotated) {}

  // Columns k .. k + 3.
  TS_MEMBER_INLINE Words4 four(int32_t k) const {
    if (aligned && k + 4 <= columns) return load16(x + k);
    Words4 found = {0, 0, 0, 0};
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i)
      if (k + i < columns) found[i] = bits_of(x[k + i]);
    return found;
  }
  // The same columns, rotated where the row is. A warp calls it for 128 columns, four for each thread.
  TS_MEMBER_INLINE Words4 turn(Words4 own) const { return rotated ? rotated_four(own) : own; }
};

// The bits of the largest magnitude among `most` and four floats.
TS_DEVICE_INLINE uint32_t most_of(Words4 floats, uint32_t most) {
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) most = larger_bits(most, floats[i] & 0x7fffffffu);
  return most;
}

// How a group is rounded. It follows from the bits of the group's largest magnitude.
struct GroupRounding {
  float scale, inverse;
  bool usable;

  TS_MEMBER_INLINE explicit GroupRounding(uint32_t most) {
    const float largest = float_of(most);
    usable = largest >= kLeastMagnitude && largest <= kMostMagnitude;
    inverse = usable ? 127.0f / largest : 0.0f;
    scale = largest / 127.0f;
  }
  // Four floats in one word of int8.
  TS_MEMBER_INLINE uint32_t rounded(Words4 floats) const {
    uint32_t found = 0;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const float scaled = usable ? float_of(floats[i]) * inverse : 0.0f;
      found |= ((bits_of(scaled + kRounder) - 0x4b400000u) & 255) << (8 * i);
    }
    return found;
  }
};

// Rounds the groups first .. first + kGroups - 1, of at most kQuads * 128 columns. to.word(k / 4, word) gets four columns; to.group(group,
// scale, correction) gets the numbers of a group. Every thread of the warp calls it.
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
      floats[g][i] = row.turn(at < row.group ? row.four(k) : Words4{0, 0, 0, 0});
    }
  }
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g) {
    most[g] = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) most[g] = most_of(floats[g][i], most[g]);
  }
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    TS_EVERY_LANE
    for (int g = 0; g < kGroups; ++g) most[g] = larger_bits(most[g], shuffle_across(most[g], mask));
  }
  TS_EVERY_LANE
  for (int g = 0; g < kGroups; ++g) {
    const GroupRounding rounding(most[g]);
    totals[g] = 0;
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) {
      const int32_t at = 4 * lane + kWarpColumns * i, k = (first + g) * row.group + at;
      const uint32_t word = rounding.rounded(floats[g][i]);
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

// Rounds one group of any size. Its columns are loaded twice.
template <class To>
TS_DEVICE_INLINE void round_wide_group(const FloatRow& row, int32_t group, To& to) {
  const int32_t first = group * row.group, end = first + row.group < row.padded ? first + row.group : row.padded;
  const int32_t own = 4 * warp_lane();
  const auto four_at = [&](int32_t k) { return row.turn(k < end ? row.four(k) : Words4{0, 0, 0, 0}); };
  uint32_t most = 0;
  for (int32_t turn = first; turn < end; turn += kWarpColumns) most = most_of(four_at(turn + own), most);
  const GroupRounding rounding(most_of_threads(most, kWarp));
  int32_t total = 0;
  for (int32_t turn = first; turn < end; turn += kWarpColumns) {
    const int32_t k = turn + own;
    const uint32_t word = rounding.rounded(four_at(k));
    total = dot4(0x01010101u, static_cast<int32_t>(word), total);
    if (k < end) to.word(k / 4, word);
  }
  total = sum_of_threads(total, kWarp);
  if (warp_lane() == 0) to.group(group, rounding.scale, -128 * total);
}

constexpr int32_t kFineThreads = static_cast<int32_t>(kFineColumns) / 4;  // the threads that together have a scale's columns, four each

// The same for kinds with a scale for each kFineColumns columns. It rounds 128 columns from `first` on. to.fine(k / kFineColumns, scale)
// gets a scale.
template <class To>
TS_DEVICE_INLINE void round_fine(const FloatRow& row, int32_t first, To& to) {
  const int32_t k = first + 4 * warp_lane();
  const Words4 four = k < row.padded ? row.four(k) : Words4{0, 0, 0, 0};
  const GroupRounding rounding(most_of_threads(most_of(four, 0), kFineThreads));
  if (k >= row.padded) return;
  to.word(k / 4, rounding.rounded(four));
  if (k % kFineColumns == 0) to.fine(k / static_cast<int32_t>(kFineColumns), rounding.scale);
}

// Rounds the groups that belong to warp `first` of `warps` warps. A warp loads several groups together, as many as fit in registers:
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

// Rounds groups of a row of activations for a block, from `first` on and at most `most`; all `warps` warps call it. group: the columns of a
// group. kBetween: the call is between two strips, where few registers are free.
template <bool kBetween, class To>
TS_DEVICE_INLINE void hold_groups(const LinearArgs& args, int64_t token, int64_t first, int64_t most, int64_t group, int32_t warps, To& to) {
  const int64_t begin = first * group, rest = args.groups - first;
  const int64_t columns = args.columns > begin ? args.columns - begin : 0;
  const FloatRow x(args.x + token * args.x_stride + begin, columns, args.padded - begin, group, most < rest ? most : rest, args.rotated != 0);
  if (kBetween) {
    for (int32_t g = warp_index(); g < x.groups; g += warps) round_wide_group(x, g, to);
  } else {
    round_row(x, warp_index(), warps, to);
  }
  barrier();
}

}  // namespace cuda
}  // namespace twostroke
