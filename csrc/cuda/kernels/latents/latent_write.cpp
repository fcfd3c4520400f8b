// latent_write: writes latents of new positions, with the rotary keys after them, into their pages. A block has one token. The pages equal
// the CPU's.
#include "twostroke/cuda/attention/pages.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, latent_extremes, 2);

TS_KERNEL(latent_write, LatentWriteArgs) {
  const int64_t token = block_index(), slot = args.slots.data[token], offset = slot % TS_PAGE_TOKENS;
  const int64_t dim = args.layer.head_dim, latent = args.layer.value_dim;
  const float* row = args.rows.data + token * args.rows.stride;
  const KVLayout layout(&args.layer);
  uint8_t* keys = layout.keys(slot / TS_PAGE_TOKENS, 0);
  if (!has_scales(args.layer.kind)) return write_float_keys(args.layer.kind, row, dim, offset, keys);
  if (warp_index() < 2) {  // one warp writes the latent, one writes the dimensions after it
    const float extreme = warp_index() == 0 ? extreme_of(row, latent) : extreme_of(row + latent, dim - latent);
    if (warp_lane() == 0) latent_extremes[warp_index()] = extreme;
  }
  barrier();
  const bool nibbles = args.layer.kind == TS_KV_INT4;
  const Rounding first(latent_extremes[0], nibbles), second(latent_extremes[1], nibbles);
  if (thread_index() == 0) {
    reinterpret_cast<uint16_t*>(layout.key_scales(keys))[offset] = first.bits;
    reinterpret_cast<uint16_t*>(layout.value_scales(keys))[offset] = latent < dim ? second.bits : 0;
  }
  write_whole_keys([&](int64_t d) { return d < latent ? first(row[d]) : second(row[d]); }, dim, offset, nibbles, keys);
}

}  // namespace cuda
}  // namespace twostroke
