// kv_write: K and V of new positions into their pages, a block a token and KV head. The pages are the CPU's (kv_page.h), byte for byte.
// Knows: the page layout, the rounding of ops/kv_pages.py. Must not know: attention.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"
#include "twostroke/kv_page.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, extremes, 2);

// The first element of the largest magnitude; NaN where any element is NaN.
TS_DEVICE_INLINE float extreme_of(const float* x, int64_t dim) {
  float largest = x[0];
  for (int64_t d = 0; d < dim; ++d) {
    if (x[d] != x[d]) return x[d];
    if (__builtin_fabsf(x[d]) > __builtin_fabsf(largest)) largest = x[d];
  }
  return largest;
}

// A row's scale as bf16 bits, and what q is clipped to.
struct Rounding {
  float scale, low, high;
  uint16_t bits;
  bool usable;

  Rounding(float extreme, bool nibbles) {
    const bool finite = __builtin_fabsf(extreme) <= 3.4028234664e38f;
    bits = !finite ? 0x7fc0 : to_bf16(nibbles ? extreme / -8.0f : __builtin_fabsf(extreme) / 127.0f);
    scale = widen(bits);
    usable = finite && (bits & 0x7fff) != 0;
    low = nibbles ? -8.0f : -127.0f;
    high = nibbles ? 7.0f : 127.0f;
  }
  int32_t operator()(float x) const {
    if (!usable) return 0;
    float quotient = x / scale;  // clipped first: a scale that underflowed may leave it far beyond
    quotient = quotient < low ? low : quotient > high ? high : quotient;
    return static_cast<int32_t>((quotient + kRounder) - kRounder);
  }
};

TS_DEVICE_INLINE uint8_t nibbles_of(const Rounding& rounding, const float* x, int64_t dim, int64_t low, int64_t high) {
  const int32_t first = (low < dim ? rounding(x[low]) : 0) + 8, second = (high < dim ? rounding(x[high]) : 0) + 8;
  return static_cast<uint8_t>(first | second << 4);
}

TS_DEVICE_INLINE void write_floats(const KVWriteArgs& args, const float* k, const float* v, int64_t offset, uint8_t* keys, uint8_t* values) {
  const int64_t dim = args.layer.head_dim, value_dim = args.layer.value_dim;
  if (args.layer.kind == TS_KV_F32) {
    for (int64_t d = thread_index(); d < dim; d += threads()) reinterpret_cast<float*>(keys)[d * TS_PAGE_TOKENS + offset] = k[d];
    for (int64_t d = thread_index(); d < value_dim; d += threads()) reinterpret_cast<float*>(values)[offset * value_dim + d] = v[d];
    return;
  }
  const int64_t even = (dim + 1) / 2 * 2, even_value = (value_dim + 1) / 2 * 2;
  for (int64_t d = thread_index(); d < even; d += threads())
    reinterpret_cast<uint16_t*>(keys)[(d / 2 * TS_PAGE_TOKENS + offset) * 2 + d % 2] = to_bf16(d < dim ? k[d] : 0.0f);
  for (int64_t d = thread_index(); d < even_value; d += threads())
    reinterpret_cast<uint16_t*>(values)[(offset / 2 * even_value + d) * 2 + offset % 2] = to_bf16(d < value_dim ? v[d] : 0.0f);
}

TS_DEVICE_INLINE void write_keys(const Rounding& rounding, const float* k, int64_t dim, int64_t offset, bool nibbles, uint8_t* keys) {
  if (!nibbles) {
    for (int64_t d = thread_index(); d < (dim + 3) / 4 * 4; d += threads())
      keys[d / 4 * 64 + offset * 4 + d % 4] = static_cast<uint8_t>((d < dim ? rounding(k[d]) : 0) + 128);
    return;
  }
  for (int64_t i = thread_index(); i < (dim + 7) / 8 * 4; i += threads()) {
    const int64_t low = i / 4 * 8 + i % 4;
    keys[i / 4 * 64 + offset * 4 + i % 4] = nibbles_of(rounding, k, dim, low, low + 4);
  }
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
    values[(offset / 4 * blocks + i / 16) * 64 + i % 16 * 4 + offset % 4] = nibbles_of(rounding, v, dim, low, low + 16);
  }
}

TS_KERNEL(kv_write, KVWriteArgs) {
  const int64_t heads = args.layer.kv_heads, token = block_index() / heads, head = block_index() % heads;
  const int64_t dim = args.layer.head_dim, value_dim = args.layer.value_dim;
  const int64_t slot = args.slots[token], offset = slot % TS_PAGE_TOKENS;
  const float *k = args.k + token * args.k_stride + head * dim, *v = args.v + token * args.v_stride + head * value_dim;
  const KVLayout layout(&args.layer);
  uint8_t* keys = layout.keys(slot / TS_PAGE_TOKENS, head);
  uint8_t* values = layout.values(keys);
  if (!has_scales(args.layer.kind)) return write_floats(args, k, v, offset, keys, values);
  if (thread_index() == 0) {
    extremes[0] = extreme_of(k, dim);
    extremes[1] = extreme_of(v, value_dim);
  }
  barrier();
  const bool nibbles = args.layer.kind == TS_KV_INT4;
  const Rounding key(extremes[0], nibbles), value(extremes[1], nibbles);
  if (thread_index() == 0) {
    reinterpret_cast<uint16_t*>(layout.key_scales(keys))[offset] = key.bits;
    reinterpret_cast<uint16_t*>(layout.value_scales(keys))[offset] = value.bits;
  }
  write_keys(key, k, dim, offset, nibbles, keys);
  write_values(value, v, value_dim, offset, nibbles, values);
}

}  // namespace cuda
}  // namespace twostroke
