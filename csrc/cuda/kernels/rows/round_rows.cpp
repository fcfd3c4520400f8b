// round_rows: rounds each row to whole numbers of 8 bits, and turns them back into floats. A block has one row.
#include "twostroke/cuda/machine/block.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(round_rows, ts_round_rows_args) {
  float* out = args.out.data + block_index() * args.out.stride;
  const float* x = args.x.data + block_index() * args.x.stride;
  const int64_t columns = width_of(args.out);
  uint32_t own = bits_of(1e-5f);  // the bits of magnitudes have the order of the magnitudes, and those of NaN are above all others
  for (int64_t i = thread_index(); i < columns; i += kThreads) own = larger_bits(own, bits_of(x[i]) & 0x7fffffffu);
  const float steps = 127.0f / float_of(static_cast<uint32_t>(block_most(own)));
  for (int64_t i = thread_index(); i < columns; i += kThreads) {
    const float whole = __builtin_rintf(x[i] * steps);
    out[i] = (whole > 127.0f ? 127.0f : whole < -128.0f ? -128.0f : whole) / steps;
  }
}

}  // namespace cuda
}  // namespace twostroke
