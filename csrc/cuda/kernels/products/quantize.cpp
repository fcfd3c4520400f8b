// Rounds rows of activations to int8 by group, for products that read them from global memory.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

// The place of one rounded row.
struct RoundedRow {
  uint32_t* words;
  float* scales;
  int32_t* corrections;

  TS_MEMBER_INLINE void word(int32_t at, uint32_t four) { words[at] = four; }
  TS_MEMBER_INLINE void group(int32_t at, float scale, int32_t correction) {
    scales[at] = scale;
    corrections[at] = correction;
  }
};

// A warp rounds some groups of one row.
TS_KERNEL(quantize, QuantizeArgs) {
  const int64_t row = block_index() / args.parts;
  const int32_t warps = kQuantizeThreads / kWarp, part = static_cast<int32_t>(block_index() % args.parts);
  const FloatRow from(args.x + row * args.x_stride, args.columns, args.padded, args.group, args.groups, args.rotated != 0);
  RoundedRow to = {reinterpret_cast<uint32_t*>(args.q + row * args.padded), args.scales + row * args.groups, args.corrections + row * args.groups};
  round_row(from, part * warps + warp_index(), static_cast<int32_t>(args.parts) * warps, to);
}

}  // namespace cuda
}  // namespace twostroke
