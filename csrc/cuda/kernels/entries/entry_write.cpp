// entry_write: writes entries that close in this step into their pages. A block has one row. The pages equal the CPU's, byte for byte.
#include "twostroke/attention/entry_page.h"
#include "twostroke/cuda/attention/pages.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, entry_extreme, 1);

TS_KERNEL(entry_write, EntryWriteArgs) {
  const int64_t row = block_index(), slot = args.slots.data[row], dim = width_of(args.rows), page = slot / TS_PAGE_TOKENS, place = slot % TS_PAGE_TOKENS / args.rate;
  if ((args.positions.data[row] + int64_t{1}) % args.rate != 0) return;
  const float* from = args.rows.data + row * args.rows.stride;
  const EntryLayout layout(&args.layer, dim, args.rate);
  uint8_t* to = layout.entry(page, place);
  if (args.layer.kind == TS_KV_F32) {
    for (int64_t d = thread_index(); d < dim; d += threads()) reinterpret_cast<float*>(to)[d] = from[d];
    return;
  }
  if (args.layer.kind == TS_KV_BF16) {
    for (int64_t d = thread_index(); d < dim; d += threads()) reinterpret_cast<uint16_t*>(to)[d] = to_bf16(from[d]);
    return;
  }
  if (warp_index() == 0) {
    const float extreme = extreme_of(from, dim);
    if (warp_lane() == 0) entry_extreme[0] = extreme;
  }
  barrier();
  const bool nibbles = args.layer.kind == TS_KV_INT4;
  const Rounding rounded(entry_extreme[0], nibbles);
  if (thread_index() == 0) *reinterpret_cast<uint16_t*>(layout.scale(page, place)) = rounded.bits;
  if (nibbles) {
    for (int64_t i = thread_index(); i < dim / 2; i += threads())
      to[i] = static_cast<uint8_t>((rounded(from[2 * i]) + 8) | (rounded(from[2 * i + 1]) + 8) << 4);
    return;
  }
  for (int64_t d = thread_index(); d < dim; d += threads()) to[d] = static_cast<uint8_t>(static_cast<int8_t>(rounded(from[d])));
}

}  // namespace cuda
}  // namespace twostroke
