// quantize_prompt rounds rows of activations to int8 by groups of 128 or 256 columns, as quantize does, and lays them out for linear_prompt.
#include "twostroke/cuda/machine/bulk.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kRoundedAtOnce = static_cast<int32_t>(kPromptPiecesAtOnce);

// The place of columns k .. k + 3 of a row and a piece: see PromptInt8 and product_place. q has the shape (pieces, room / 64, 64, 128).
TS_DEVICE_INLINE uint32_t* prompt_place(const RoundArgs& args, int64_t row, int64_t piece, int32_t k) {
  // the order of a thread's two rows of eights in C: tokens 16t + 2j + c are rows 8j + 2t + c of the product
  const int32_t token = static_cast<int32_t>(row % kProductRows), in_product = token % 16 / 2 * 8 + token / 16 * 2 + token % 2;
  const int32_t four = k / 4 % 8, chunk = k / 32 * 2 + four % 2;
  const int64_t part = piece * (args.room / kProductRows) + row / kProductRows;
  return reinterpret_cast<uint32_t*>(args.q + part * kProductWords * 16) + product_place(in_product, chunk) * 4 + four / 2;
}

// A warp rounds up to four pieces of 128 columns of a row, which are groups or halves of them. A thread has four columns of each piece.
TS_KERNEL(quantize_prompt, RoundArgs) {
  const int32_t halves = args.group == kProductColumns ? 1 : 2;
  const int64_t pieces = args.groups * halves, turns = (pieces + kRoundedAtOnce - 1) / kRoundedAtOnce;
  const int64_t own = block_index() * kTileRoundWarps + warp_index();
  if (own >= args.rows * turns) return;
  const int64_t row = own / turns, first = own % turns * kRoundedAtOnce;
  const int32_t lane = warp_lane(), mine = lane % kRoundedAtOnce;
  const FloatRow x(args.x + row * args.x_stride, args.columns, args.padded, args.group, args.groups, args.rotated != 0);
  Words4 floats[kRoundedAtOnce];
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i)
    floats[i] = x.turn(first + i < pieces ? x.four(static_cast<int32_t>((first + i) * kProductColumns) + 4 * lane) : Words4{0, 0, 0, 0});
  uint32_t found[kRoundedAtOnce], most = 0;
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i) found[i] = largest_of_warp(most_of(floats[i], 0));
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i) {
    const uint32_t of_group = halves == 1 ? found[i] : larger_bits(found[i], found[i ^ 1]);
    most = mine == i ? of_group : most;
  }
  const GroupRounding rounding(most);  // a thread divides for one piece
  if (lane < kRoundedAtOnce && first + lane < pieces && (halves == 1 || lane % 2 == 0))
    args.scales[(first + lane) / halves * args.room + row] = rounding.scale;
  TS_EVERY_LANE
  for (int i = 0; i < kRoundedAtOnce; ++i) {
    GroupRounding of_piece = rounding;
    of_piece.inverse = float_of(shuffle(bits_of(rounding.inverse), i));
    of_piece.usable = of_piece.inverse != 0.0f;
    const uint32_t word = of_piece.rounded(floats[i]);
    if (first + i < pieces) *prompt_place(args, row, first + i, 4 * lane) = word;
  }
}

}  // namespace cuda
}  // namespace twostroke
