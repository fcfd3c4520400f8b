// The rows at the first positions of a text, whose inputs have two codes. What rounding loses of them is computed here, and both codes are
// multiplied like other rows. Then their sums are added and finished.
#include "twostroke/cuda/machine/fours.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int kHeldFours = 2;  // fours of a unit that a thread loads once; of a wider group it loads the others twice

// Columns of a row that one warp computes: a group, or 128 columns of kinds with a scale for each kFineColumns columns.
struct LostUnit {
  const FloatRow& row;
  int32_t first, end;

  TS_MEMBER_INLINE Words4 four(int32_t turn) const {
    const int32_t k = first + turn * kWarpColumns + 4 * warp_lane();
    return row.turn(k < end ? row.four(k) : Words4{0, 0, 0, 0});
  }
  // Stores four columns of the row, and x - code * scale for each of them.
  TS_MEMBER_INLINE void store(const GroupRounding& rounding, int32_t turn, Words4 four, float* own, float* lost) const {
    const int32_t k = first + turn * kWarpColumns + 4 * warp_lane();
    if (k >= end) return;
    const uint32_t word = rounding.rounded(four);
    Words4 left;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const int32_t code = static_cast<int32_t>(word << (24 - 8 * i)) >> 24;
      left[i] = bits_of(float_of(four[i]) - static_cast<float>(code) * rounding.scale);
    }
    *reinterpret_cast<Words4*>(own + k) = four;
    *reinterpret_cast<Words4*>(lost + k) = left;
  }
};

// lanes: the threads whose columns share a scale.
TS_DEVICE_INLINE void lose_unit(const LostUnit& unit, int32_t lanes, float* own, float* lost) {
  const int32_t turns = (unit.end - unit.first + kWarpColumns - 1) / kWarpColumns;
  Words4 held[kHeldFours];
  uint32_t most = 0;
  TS_EVERY_LANE
  for (int turn = 0; turn < kHeldFours; ++turn) held[turn] = unit.four(turn);
  TS_EVERY_LANE
  for (int turn = 0; turn < kHeldFours; ++turn) most = most_of(held[turn], most);
  for (int32_t turn = kHeldFours; turn < turns; ++turn) most = most_of(unit.four(turn), most);
  const GroupRounding rounding(most_of_threads(most, lanes));
  TS_EVERY_LANE
  for (int turn = 0; turn < kHeldFours; ++turn) unit.store(rounding, turn, held[turn], own, lost);
  for (int32_t turn = kHeldFours; turn < turns; ++turn) unit.store(rounding, turn, unit.four(turn), own, lost);
}

// A block has some units of one row: it stores the row, rotated where it is, and what is lost of it. It also keeps its part of the old
// content of `out`, to which the finished row is added.
TS_KERNEL(first_remainders, FirstArgs) {
  const int32_t parts = static_cast<int32_t>(args.parts), index = static_cast<int32_t>(block_index()) / parts;
  const int32_t part = static_cast<int32_t>(block_index()) - index * parts, unit = part * (kQuantizeThreads / kWarp) + warp_index();
  const FloatRow row(args.x + args.rows[index] * args.x_stride, args.columns, args.padded, args.group, args.units, args.rotated != 0);
  if (unit < row.groups) {
    const int32_t first = unit * row.group, end = first + row.group < row.padded ? first + row.group : row.padded;
    float* own = args.made + index * args.padded;
    lose_unit({row, first, end}, args.fine != 0 ? kFineThreads : kWarp, own, own + args.count * args.padded);
  }
  if (args.add == 0) return;
  const int32_t width = static_cast<int32_t>(args.width);
  const float* old = args.out + args.rows[index] * args.out_stride;
  for (int32_t i = 4 * (part * kQuantizeThreads + thread_index()); i < width; i += 4 * parts * kQuantizeThreads) {
    const int32_t count = width - i < 4 ? width - i : 4;
    store_four(args.kept + index * args.width + i, load_four(old + i, count), count);
  }
}

// The sums of four rows of the matrix, with their bias.
TS_DEVICE_INLINE Four first_sum(const FirstArgs& args, const FourPlace& e, int64_t shift) {
  const int64_t at = e.row * args.sums + shift + e.at;
  Four sum = load_four(args.products + at, e.count);
  const Four more = load_four(args.products + args.count * args.sums + at, e.count);
  TS_EACH_OF_FOUR sum.v[i] = sum.v[i] + more.v[i];
  if (args.bias == nullptr) return sum;
  const Four bias = load_four(args.bias + shift + e.at, e.count);
  TS_EACH_OF_FOUR sum.v[i] = sum.v[i] + bias.v[i];
  return sum;
}

// Finishes the sums, and replaces the rows of `out`.
TS_KERNEL(first_put, FirstArgs) {
  const FourPlace e = four_place(args.width);
  if (e.count == 0) return;
  Four made = first_sum(args, e, 0);
  if (args.gated != 0) {
    const Four up = first_sum(args, e, args.width);
    activate_four(0, made);
    TS_EACH_OF_FOUR made.v[i] = made.v[i] * up.v[i];
  }
  if (args.add != 0) {
    const Four old = load_four(args.kept + e.row * args.width + e.at, e.count);
    TS_EACH_OF_FOUR made.v[i] = old.v[i] + made.v[i];
  }
  store_four(args.out + args.rows[e.row] * args.out_stride + e.at, made, e.count);
}

}  // namespace cuda
}  // namespace twostroke
