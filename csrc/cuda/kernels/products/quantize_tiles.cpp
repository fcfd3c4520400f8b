// quantize_tiles, quantize_steps: rows of activations rounded to int8 by group, as quantize does it, laid out for the tiles of linear_tile
// and of linear_steps.
// Knows: arguments.h. Must not know: weights.
#include "twostroke/cuda/products.h"

namespace twostroke {
namespace cuda {

// Four numbers from column k on; zeros behind the last column.
TS_DEVICE_INLINE void load_four(const float* x, int64_t k, int64_t columns, float (&four)[4]) {
  if (k + 4 <= columns && reinterpret_cast<uint64_t>(x + k) % 16 == 0) {
    const Words4 words = load16(x + k);
    four[0] = float_of(words.x);
    four[1] = float_of(words.y);
    four[2] = float_of(words.z);
    four[3] = float_of(words.w);
    return;
  }
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) four[i] = k + i < columns ? x[k + i] : 0.0f;
}

TS_DEVICE_INLINE uint32_t most_of(const float (&four)[4], uint32_t most) {
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = bits_of(four[i]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return most;
}

// The largest of what a warp's threads have; the sum of what `lanes` threads that follow each other have.
TS_DEVICE_INLINE uint32_t most_of_lanes(uint32_t most) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const uint32_t other = shuffle_across(most, mask);
    most = other > most ? other : most;
  }
  return most;
}
TS_DEVICE_INLINE int32_t sum_of_lanes(int32_t sum, int32_t lanes) {
  for (int32_t mask = lanes / 2; mask > 0; mask /= 2) sum += static_cast<int32_t>(shuffle_across(static_cast<uint32_t>(sum), mask));
  return sum;
}

// How a group is rounded, by its largest magnitude.
struct RowRounding {
  float scale, inverse;
  bool usable;

  TS_MEMBER_INLINE explicit RowRounding(uint32_t most) {
    const float largest = float_of(most);
    usable = largest >= kLeastMagnitude && largest <= kMostMagnitude;
    inverse = usable ? 127.0f / largest : 0.0f;
    scale = largest / 127.0f;
  }
  TS_MEMBER_INLINE uint32_t rounded(const float (&four)[4]) const {
    uint32_t word = 0;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const float scaled = usable ? four[i] * inverse : 0.0f;
      word |= ((bits_of(scaled + kRounder) - 0x4b400000u) & 0xff) << (8 * i);
    }
    return word;
  }
};

TS_DEVICE_INLINE uint32_t* place_of(const RoundArgs& args, int64_t row, int64_t k) {
  return reinterpret_cast<uint32_t*>(args.q + (k / kStep * args.room + row) * kStep + k % kStep);
}

// The row of x that a row of q is made of, and what it is multiplied by; NULL where there is none.
struct SourceRow {
  const float* x;
  float weight;
  bool weighed;

  TS_MEMBER_INLINE SourceRow(const RoundArgs& args, int64_t row) : x(nullptr), weight(1.0f), weighed(false) {
    const int64_t pair = args.order == nullptr ? row : args.order[row];
    if (pair < 0) return;
    x = args.x + (args.chosen == 0 ? row : pair / args.chosen) * args.x_stride;
    weighed = args.weights != nullptr;
    if (weighed) weight = args.weights[pair];
  }
  TS_MEMBER_INLINE void load(int64_t k, int64_t columns, float (&four)[4]) const {
    load_four(x, k, columns, four);
    TS_EVERY_LANE
    for (int i = 0; weighed && i < 4; ++i) four[i] = k + i < columns ? four[i] * weight : 0.0f;
  }
};

// A warp one group of one row; a thread four columns in each turn of 128.
TS_KERNEL(quantize_tiles, RoundArgs) {
  const int64_t pair = block_index() * kTileRoundWarps + warp_index();
  if (pair >= args.rows * args.groups) return;
  const int64_t row = pair / args.groups, group = pair % args.groups, first = group * args.group, own = first + 4 * warp_lane();
  const int64_t end = first + args.group < args.padded ? first + args.group : args.padded;
  const SourceRow x(args, row);
  if (x.x == nullptr) return;
  float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  uint32_t most = 0;
  for (int64_t k = own + 4 * kWarp; k < end; k += 4 * kWarp) {
    x.load(k, args.columns, four);
    most = most_of(four, most);
  }
  if (own < end) x.load(own, args.columns, four);
  const RowRounding rounding(most_of_lanes(most_of(four, most)));
  int32_t sum = 0;
  for (int64_t k = own; k < end; k += 4 * kWarp) {
    if (k != own) x.load(k, args.columns, four);
    const uint32_t word = rounding.rounded(four);
    *place_of(args, row, k) = word;
    sum = dot4(0x01010101u, static_cast<int32_t>(word), sum);
  }
  sum = sum_of_lanes(sum, kWarp);
  if (warp_lane() == 0) args.pairs[group * args.room + row] = {rounding.scale, args.added - 128 * sum};
}

// The same for stored kinds: groups of 256 columns, and sums of each step. Of 64 columns the fours 2t, 2t + 1, 8 + 2t, 9 + 2t follow each
// other, which are what thread t of linear_steps multiplies.
TS_KERNEL(quantize_steps, RoundArgs) {
  const int64_t pair = block_index() * kTileRoundWarps + warp_index();
  if (pair >= args.rows * args.groups) return;
  const int64_t row = pair / args.groups, group = pair % args.groups, own = group * kStoredGroup + 4 * warp_lane();
  const SourceRow x(args, row);
  if (x.x == nullptr) return;
  float four[2][4];
  uint32_t most = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    x.load(own + i * 128, args.columns, four[i]);
    most = most_of(four[i], most);
  }
  const RowRounding rounding(most_of_lanes(most));
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    const int64_t k = own + i * 128, at = k % kStep / 4;
    const uint32_t word = rounding.rounded(four[i]);
    const int32_t sum = sum_of_lanes(dot4(0x01010101u, static_cast<int32_t>(word), 0), args.sub / 4);
    if (k >= args.padded) continue;
    *place_of(args, row, k / kStep * kStep + (at % 8 / 2 * 4 + at / 8 * 2 + at % 2) * 4) = word;
    if (k % args.sub == 0) args.pairs[k / args.sub * args.room + row] = {static_cast<float>(sum), args.added - args.offset * sum};
  }
  if (warp_lane() == 0) args.scales[group * args.room + row] = rounding.scale;
}

}  // namespace cuda
}  // namespace twostroke
