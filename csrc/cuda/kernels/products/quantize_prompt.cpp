// quantize_prompt rounds rows of activations to int8 by groups of 128 columns, as quantize does, and lays them out for linear_prompt.
#include "twostroke/cuda/machine/bulk.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kRoundedAtOnce = static_cast<int32_t>(kPromptGroupsAtOnce);

// The place of columns k .. k + 3 of a row and a group: see PromptInt8 and product_place. q has the shape (groups, room / 64, 64, 128).
TS_DEVICE_INLINE uint32_t* prompt_place(const RoundArgs& args, int64_t row, int64_t group, int32_t k) {
  // the order of a thread's two rows of eights in C: tokens 16t + 2j + c are rows 8j + 2t + c of the product
  const int32_t token = static_cast<int32_t>(row % kProductRows), in_product = token % 16 / 2 * 8 + token / 16 * 2 + token % 2;
  const int32_t four = k / 4 % 8, chunk = k / 32 * 2 + four % 2;
  const int64_t part = group * (args.room / kProductRows) + row / kProductRows;
  return reinterpret_cast<uint32_t*>(args.q + part * kProductWords * 16) + product_place(in_product, chunk) * 4 + four / 2;
}

// A warp rounds up to four groups of a row. A thread has four columns of each group.
TS_KERNEL(quantize_prompt, RoundArgs) {
  const int64_t parts = (args.groups + kRoundedAtOnce - 1) / kRoundedAtOnce, own = block_index() * kTileRoundWarps + warp_index();
  if (own >= args.rows * parts) return;
  const int64_t row = own / parts, first = own % parts * kRoundedAtOnce;
  const int32_t lane = warp_lane(), mine = lane % kRoundedAtOnce;
  const FloatRow x(args.x + row * args.x_stride, args.columns, args.padded, args.group, args.groups, args.rotated != 0);
  Words4 floats[kRoundedAtOnce];
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i)
    floats[i] = x.turn(first + i < args.groups ? x.four(static_cast<int32_t>((first + i) * args.group) + 4 * lane) : Words4{0, 0, 0, 0});
  uint32_t most = 0;
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i) {
    const uint32_t found = largest_of_warp(most_of(floats[i], 0));
    most = mine == i ? found : most;
  }
  const GroupRounding rounding(most);  // a thread divides for one group
  if (lane < kRoundedAtOnce && first + lane < args.groups) args.scales[(first + lane) * args.room + row] = rounding.scale;
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i) {
    GroupRounding of_group = rounding;
    of_group.inverse = float_of(shuffle(bits_of(rounding.inverse), i));
    of_group.usable = of_group.inverse != 0.0f;
    const uint32_t word = of_group.rounded(floats[i]);
    if (first + i < args.groups) *prompt_place(args, row, first + i, 4 * lane) = word;
  }
}

}  // namespace cuda
}  // namespace twostroke
