// quantize_tiles and quantize_steps round rows of activations to int8 by group, as quantize does, and lay them out for the tiles of
// linear_tile and linear_steps.
#include "twostroke/cuda/products/products.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE uint32_t* place_of(const RoundArgs& args, int64_t row, int64_t k) {
  return reinterpret_cast<uint32_t*>(args.q + (k / kStep * args.room + row) * kStep + k % kStep);
}

// The row of x from which a row of q is made, and its factor; NULL where there is none.
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
  // Columns k .. k + 3 of the row.
  TS_MEMBER_INLINE Words4 four(const RoundArgs& args, int64_t k) const {
    const FloatRow row(x, args.columns, args.padded, args.group, args.groups, false);
    Words4 found = row.four(static_cast<int32_t>(k));
    if (!weighed) return found;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) found[i] = k + i < args.columns ? bits_of(float_of(found[i]) * weight) : 0;
    return found;
  }
};

// A warp rounds one group of one row. A thread has four columns of each 128.
TS_KERNEL(quantize_tiles, RoundArgs) {
  const int64_t pair = block_index() * kTileRoundWarps + warp_index();
  if (pair >= args.rows * args.groups) return;
  const int64_t row = pair / args.groups, group = pair % args.groups, first = group * args.group, own = first + 4 * warp_lane();
  const int64_t end = first + args.group < args.padded ? first + args.group : args.padded;
  const SourceRow x(args, row);
  if (x.x == nullptr) return;
  const auto four_at = [&](int64_t k) {
    const Words4 found = k < end ? x.four(args, k) : Words4{0, 0, 0, 0};
    return args.rotated != 0 ? rotated_four(found) : found;
  };
  Words4 four = four_at(own);
  uint32_t most = most_of(four, 0);
  for (int64_t turn = first + kWarpColumns; turn < end; turn += kWarpColumns) most = most_of(four_at(own + turn - first), most);
  const GroupRounding rounding(most_of_threads(most, kWarp));
  int32_t sum = 0;
  for (int64_t turn = first; turn < end; turn += kWarpColumns) {
    const int64_t k = own + turn - first;
    if (turn != first) four = four_at(k);
    const uint32_t word = rounding.rounded(four);
    if (k < end) *place_of(args, row, k) = word;
    sum = dot4(0x01010101u, static_cast<int32_t>(word), sum);
  }
  sum = sum_of_threads(sum, kWarp);
  if (warp_lane() == 0) args.pairs[group * args.room + row] = {rounding.scale, args.added - 128 * sum};
}

// The same for stored kinds, with groups of 256 columns, or scales for 32 columns, and sums of each step. Of each 64 columns, the fours 2t,
// 2t + 1, 8 + 2t, 9 + 2t lie one after another, because thread t of linear_steps multiplies them.
TS_KERNEL(quantize_steps, RoundArgs) {
  const int64_t pair = block_index() * kTileRoundWarps + warp_index();
  if (pair >= args.rows * args.groups) return;
  const int64_t row = pair / args.groups, group = pair % args.groups, own = group * kStoredGroup + 4 * warp_lane();
  const SourceRow x(args, row);
  if (x.x == nullptr) return;
  Words4 four[2];
  uint32_t most[2];
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    four[i] = x.four(args, own + i * kWarpColumns);
    if (args.rotated != 0) four[i] = rotated_four(four[i]);
    most[i] = most_of_threads(most_of(four[i], 0), args.fine != 0 ? kFineThreads : kWarp);
  }
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    const GroupRounding rounding(args.fine != 0 ? most[i] : larger_bits(most[0], most[1]));
    const int64_t k = own + i * kWarpColumns, at = k % kStep / 4;
    const uint32_t word = rounding.rounded(four[i]);
    const int32_t sum = sum_of_threads(dot4(0x01010101u, static_cast<int32_t>(word), 0), args.sub / 4);
    if (k >= args.padded) continue;
    *place_of(args, row, k / kStep * kStep + (at % 8 / 2 * 4 + at / 8 * 2 + at % 2) * 4) = word;
    if (k % args.sub == 0) {
      float taken = static_cast<float>(sum);
      if (args.fine != 0) taken = args.minimum != 0 ? taken * rounding.scale : rounding.scale;
      args.pairs[k / args.sub * args.room + row] = {taken, args.added - args.offset * sum};
    }
    if (args.fine != 0 && k % kFineColumns == 0) args.scales[k / kFineColumns * args.room + row] = rounding.scale;
    if (args.fine == 0 && k % kStoredGroup == 0) args.scales[group * args.room + row] = rounding.scale;
  }
}

}  // namespace cuda
}  // namespace twostroke
