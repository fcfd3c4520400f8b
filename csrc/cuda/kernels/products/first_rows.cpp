// The rows at the first positions of a text, whose inputs have two codes. What rounding loses of them is computed here and multiplied like
// other rows. Then the sums of both products are added and finished.
#include "twostroke/cuda/machine/fours.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

// x - code * scale for four columns.
TS_DEVICE_INLINE void lose_four(const GroupRounding& rounding, Words4 four, float* to) {
  const uint32_t word = rounding.rounded(four);
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) {
    const int32_t code = static_cast<int32_t>(word << (24 - 8 * i)) >> 24;
    to[i] = float_of(four[i]) - static_cast<float>(code) * rounding.scale;
  }
}

TS_DEVICE_INLINE void lose_group(const FloatRow& row, int32_t group, float* lost) {
  const int32_t first = group * row.group, end = first + row.group < row.padded ? first + row.group : row.padded, own = 4 * warp_lane();
  const auto four_at = [&](int32_t k) { return row.turn(k < end ? row.four(k) : Words4{0, 0, 0, 0}); };
  uint32_t most = 0;
  for (int32_t turn = first; turn < end; turn += kWarpColumns) most = most_of(four_at(turn + own), most);
  const GroupRounding rounding(most_of_threads(most, kWarp));
  for (int32_t turn = first; turn < end; turn += kWarpColumns) {
    const Words4 four = four_at(turn + own);
    if (turn + own < end) lose_four(rounding, four, lost + turn + own);
  }
}

// The same for kinds with a scale for each kFineColumns columns. It computes 128 columns from `first` on.
TS_DEVICE_INLINE void lose_fine(const FloatRow& row, int32_t first, float* lost) {
  const int32_t k = first + 4 * warp_lane();
  const Words4 four = k < row.padded ? row.four(k) : Words4{0, 0, 0, 0};
  const GroupRounding rounding(most_of_threads(most_of(four, 0), kFineThreads));
  if (k < row.padded) lose_four(rounding, four, lost + k);
}

// A block copies one row and computes what is lost of it.
TS_KERNEL(first_remainders, FirstArgs) {
  const int64_t index = block_index();
  const float* x = args.x + args.rows[index] * args.x_stride;
  float *own = args.own + index * args.columns, *lost = args.lost + index * args.padded;
  for (int64_t k = thread_index(); k < args.columns; k += kQuantizeThreads) own[k] = x[k];
  const FloatRow row(x, args.columns, args.padded, args.group, args.groups, args.rotated != 0);
  constexpr int32_t kWarps = kQuantizeThreads / kWarp;
  if (args.fine != 0) {
    for (int32_t k = warp_index() * kWarpColumns; k < row.padded; k += kWarps * kWarpColumns) lose_fine(row, k, lost);
  } else {
    for (int32_t g = warp_index(); g < row.groups; g += kWarps) lose_group(row, g, lost);
  }
}

// The sums of four rows of the matrix, with their bias.
TS_DEVICE_INLINE Four first_sum(const FirstArgs& args, const FourPlace& e, int64_t shift) {
  const int64_t at = e.row * args.sums + shift + e.at;
  Four sum = load_four(args.first + at, e.count);
  const Four more = load_four(args.second + at, e.count);
  TS_EACH_OF_FOUR sum.v[i] = sum.v[i] + more.v[i];
  if (args.bias == nullptr) return sum;
  const Four bias = load_four(args.bias + shift + e.at, e.count);
  TS_EACH_OF_FOUR sum.v[i] = sum.v[i] + bias.v[i];
  return sum;
}

// Finishes the sums into `results`, while `out` still has its old content.
TS_KERNEL(first_sums, FirstArgs) {
  const FourPlace e = four_place(args.width);
  if (e.count == 0) return;
  Four made = first_sum(args, e, 0);
  if (args.gated != 0) {
    const Four up = first_sum(args, e, args.width);
    activate_four(0, made);
    TS_EACH_OF_FOUR made.v[i] = made.v[i] * up.v[i];
  }
  if (args.add != 0) {
    const Four old = load_four(args.out + args.rows[e.row] * args.out_stride + e.at, e.count);
    TS_EACH_OF_FOUR made.v[i] = old.v[i] + made.v[i];
  }
  store_four(args.results + e.row * args.width + e.at, made, e.count);
}

TS_KERNEL(first_put, FirstArgs) {
  const FourPlace e = four_place(args.width);
  if (e.count == 0) return;
  const Four made = load_four(args.results + e.row * args.width + e.at, e.count);
  store_four(args.out + args.rows[e.row] * args.out_stride + e.at, made, e.count);
}

}  // namespace cuda
}  // namespace twostroke
