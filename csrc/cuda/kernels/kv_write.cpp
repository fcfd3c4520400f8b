// kv_write: writes K and V of new positions into their pages. A block has one token and one KV head. The pages equal the CPU's
// (attention/kv_page.h), byte for byte.
#include "twostroke/cuda/attention/pages.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, extremes, 2);

TS_DEVICE_INLINE void write_float_values(int32_t kind, const float* v, int64_t dim, int64_t offset, uint8_t* values) {
  if (kind == TS_KV_F32) {
    for (int64_t d = thread_index(); d < dim; d += threads()) reinterpret_cast<float*>(values)[offset * dim + d] = v[d];
    return;
  }
  const int64_t even = (dim + 1) / 2 * 2;
  for (int64_t d = thread_index(); d < even; d += threads())
    reinterpret_cast<uint16_t*>(values)[(offset / 2 * even + d) * 2 + offset % 2] = to_bf16(d < dim ? v[d] : 0.0f);
}

TS_DEVICE_INLINE void write_values(const Rounding& rounding, const float* v, int64_t dim, int64_t offset, bool nibbles, uint8_t* values) {
  if (!nibbles) {
    for (int64_t d = thread_index(); d < dim; d += threads())
      values[offset / 4 * dim * 4 + d * 4 + offset % 4] = static_cast<uint8_t>(rounding(v[d]));
    return;
  }
  const int64_t blocks = (dim + 31) / 32;
  for (int64_t i = thread_index(); i < blocks * 16; i += threads()) {
    const int64_t low = i / 16 * 32 + i % 16;
    values[(offset / 4 * blocks + i / 16) * 64 + i % 16 * 4 + offset % 4] = nibbles_of([&](int64_t d) { return rounding(v[d]); }, dim, low, low + 16);
  }
}

TS_KERNEL(kv_write, KVWriteArgs) {
  const int64_t heads = args.layer.kv_heads, token = block_index() / heads, head = block_index() % heads;
  const int64_t dim = args.layer.head_dim, value_dim = args.layer.value_dim;
  const int64_t slot = args.slots.data[token], offset = slot % TS_PAGE_TOKENS;
  const float *k = args.k.data + token * args.k.stride + head * dim, *v = args.v.data + token * args.v.stride + head * value_dim;
  const PageLayout& layout = args.pages;
  uint8_t* keys = layout.keys(slot / TS_PAGE_TOKENS, head);
  uint8_t* values = layout.values(keys);
  if (!has_scales(args.layer.kind)) {
    write_float_keys(args.layer.kind, k, dim, offset, keys);
    return write_float_values(args.layer.kind, v, value_dim, offset, values);
  }
  if (warp_index() < 2) {  // one warp writes K, one writes V
    const float extreme = warp_index() == 0 ? extreme_of(k, dim) : extreme_of(v, value_dim);
    if (warp_lane() == 0) extremes[warp_index()] = extreme;
  }
  barrier();
  const bool nibbles = args.layer.kind == TS_KV_INT4;
  const Rounding key(extremes[0], nibbles), value(extremes[1], nibbles);
  if (thread_index() == 0) {
    reinterpret_cast<uint16_t*>(layout.key_scales(keys))[offset] = key.bits;
    reinterpret_cast<uint16_t*>(layout.value_scales(keys))[offset] = value.bits;
  }
  write_whole_keys([&](int64_t d) { return key(k[d]); }, dim, offset, nibbles, keys);
  write_values(value, v, value_dim, offset, nibbles, values);
}

}  // namespace cuda
}  // namespace twostroke
