// A block rounds one row of activations to int8 in groups of 256 columns, into shared memory. The bits are those of round_row.
// Eight neighbouring threads have 128 columns: thread l of them has columns 4l + 32i .. 4l + 32i + 3 for i in 0 .. 3.
#pragma once
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kHoldColumns = 16 * kWarp;  // the columns that a warp has at once
constexpr int32_t kHoldThreads = kStreamGroup / 16;  // the threads that have a group

TS_SHARED_WORDS(held_row, kStreamColumns / 4);
TS_SHARED(uint64_t, held_scales, kStreamColumns / kStreamGroup);  // the scale of a group, and its correction in the upper half

struct HeldFloats {
  float x[4][4];

  TS_MEMBER_INLINE void load(const FloatRow& row, int32_t first) {
    const float* from = row.x + first;
    const int32_t left = row.columns - first;
    if (row.aligned && row.columns % 4 == 0) {
      TS_EVERY_LANE
      for (int i = 0; i < 4; ++i) {
        const Words4 four = load16_if(32 * i < left, from + 32 * i);
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) x[i][j] = float_of(four[j]);
      }
      return;
    }
    TS_EVERY_LANE
    for (int i = 0; i < 16; ++i) {
      const int32_t at = i / 4 * 32 + i % 4;
      x[i / 4][i % 4] = at < left ? from[at] : 0.0f;
    }
  }
  // Replaces x[a] by the sums and x[b] by the differences.
  TS_MEMBER_INLINE void add_pair(int a, int b) {
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      const float first = x[a][j], second = x[b][j];
      x[a][j] = first + second;
      x[b][j] = first - second;
    }
  }
  // The same for the columns of threads whose lanes differ in `mask`. First, threads give each other x[2], x[3] for x[0], x[1]. A thread without the bit then has the columns of both threads that were in its
// x[0], x[1]. The other thread has the columns that were in x[2], x[3].
  TS_MEMBER_INLINE void add_threads(int32_t mask) {
    const bool upper = (warp_lane() & mask) != 0;
    TS_EVERY_LANE
    for (int i = 0; i < 8; ++i) {
      float &low = x[i / 4][i % 4], &high = x[2 + i / 4][i % 4];
      const float got = shuffle_across(upper ? low : high, mask);
      low = upper ? got : low;
      high = upper ? high : got;
    }
    add_pair(0, 2);
    add_pair(1, 3);
  }
  // Rotates each 64 columns, with the additions of rotated_four. Afterwards, x[i] of a thread has the column
// `64a + 4b + 8c + 16(i / 2) + 32(i % 2)`. Here a, b and c are the bits 1, 2 and 4 of its lane.
  TS_MEMBER_INLINE void rotate() {
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const float a = x[i][0] + x[i][1], b = x[i][0] - x[i][1], c = x[i][2] + x[i][3], d = x[i][2] - x[i][3];
      x[i][0] = a + c;
      x[i][1] = b + d;
      x[i][2] = a - c;
      x[i][3] = b - d;
    }
    TS_EVERY_LANE
    for (int32_t mask = 1; mask < 8; mask *= 2) add_threads(mask);
    add_pair(0, 1);
    add_pair(2, 3);
  }
  TS_MEMBER_INLINE Words4 four(int i) const { return Words4{bits_of(x[i][0]), bits_of(x[i][1]), bits_of(x[i][2]), bits_of(x[i][3])}; }
};

// Rounds the columns that a warp has, from `first` on, and stores those in [0, end). end: the end of the last group.
TS_DEVICE_INLINE void hold_columns(HeldFloats floats, bool rotated, int32_t first, int32_t end) {
  const int32_t lane = warp_lane(), begin = first + lane / 8 * 128;
  const int32_t word = (rotated ? lane % 2 * 16 + lane / 2 % 2 + lane / 4 % 2 * 2 : lane % 8) + begin / 4, far = rotated ? 4 : 16;
  const bool there = begin >= 0 && begin < end;
  if (rotated) floats.rotate();
  uint32_t most = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) most = most_of(floats.four(i), most);
  const GroupRounding rounding(most_of_threads(most, kHoldThreads));
  int32_t total = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) {
    const uint32_t four = rounding.rounded(floats.four(i));
    total = dot4(0x01010101u, static_cast<int32_t>(four), total);
    if (there) held_row[word + i % 2 * 8 + i / 2 * far] = four;
  }
  total = sum_of_threads(total, kHoldThreads);
  if (lane % kHoldThreads == 0 && there)
    held_scales[begin / kStreamGroup] = bits_of(rounding.scale) | static_cast<uint64_t>(static_cast<uint32_t>(-128 * total)) << 32;
}

// Rounds the row of args.x, up to whole groups, as soon as earlier kernels have ended. All threads of the block see it then. A first turn
// rounds zeros for nothing, so that the instructions are at hand when the row is.
TS_DEVICE_INLINE void hold_row(const LinearArgs& args) {
  const FloatRow row(args.x, args.columns, args.padded, args.group, args.groups, args.rotated != 0);
  const int32_t end = row.groups * kStreamGroup, stride = threads() * 16, own = warp_lane() / 8 * 128 + warp_lane() % 8 * 4;
  const int32_t begin = warp_index() * kHoldColumns;
  HeldFloats floats = {};
  TS_ONE_BY_ONE
  for (int32_t first = begin - stride; first < end; first += stride) {
    hold_columns(floats, row.rotated, first, end);
    wait_for_earlier();
    floats.load(row, first + stride + own);
  }
  barrier();
}

}  // namespace cuda
}  // namespace twostroke
