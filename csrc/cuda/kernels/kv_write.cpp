// kv_write: writes K and V of new positions into their pages. A block has one token and one KV head; its first warp writes K, the second
// one V. The pages equal the CPU's (attention/kv_page.h), byte for byte.
#include "twostroke/cuda/attention/pages.h"

namespace twostroke {
namespace cuda {

// A row of K or V as quads of dimensions, with zeros after the last dimension.
struct QuadRow {
  const float* x;
  int32_t dim;

  TS_MEMBER_INLINE Words4 quad(int32_t index) const {
    const int32_t d = 4 * index;
    if (dim % 4 == 0 && reinterpret_cast<uint64_t>(x) % 16 == 0) return d < dim ? load16(x + d) : Words4{0, 0, 0, 0};
    Words4 found;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) found[j] = d + j < dim ? bits_of(x[d + j]) : 0;
    return found;
  }
  // The same as extreme_of; where `sign` is false, maybe with the other sign.
  TS_MEMBER_INLINE float extreme(bool sign) const {
    constexpr uint32_t kNaN = 0x7f800001u;
    uint32_t most = 0, found = 0;  // found: the larger, the earlier the place; the last bit is the sign
    for (int32_t index = warp_lane(), begin = index; 4 * index < dim || index == begin; index += kWarp) {
      const Words4 four = quad(index);
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const uint32_t bits = four[j] & 0x7fffffffu, magnitude = bits < kNaN ? bits : kNaN;
        if (magnitude <= most && (index != begin || j != 0)) continue;
        most = magnitude;
        found = (0x3fffffffu - static_cast<uint32_t>(4 * index + j)) << 1 | four[j] >> 31;
      }
    }
    const uint32_t all = most_of_threads(most, kWarp);
    if (!sign) return float_of(all);
    return float_of(all | (most_of_threads(most == all ? found : 0, kWarp) & 1) << 31);
  }
};

TS_DEVICE_INLINE void write_byte_keys(const QuadRow& row, const Rounding& rounding, int32_t offset, uint8_t* keys) {
  for (int32_t i = warp_lane(); 4 * i < row.dim; i += kWarp) {
    const Words4 four = row.quad(i);
    uint32_t word = 0;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) word |= static_cast<uint32_t>(rounding(float_of(four[j])) + 128) << (8 * j);
    reinterpret_cast<uint32_t*>(keys)[i * 16 + offset] = word;
  }
}

TS_DEVICE_INLINE void write_byte_values(const QuadRow& row, const Rounding& rounding, int32_t offset, uint8_t* values) {
  uint8_t* to = values + offset / 4 * row.dim * 4 + offset % 4;
  for (int32_t i = warp_lane(); 4 * i < row.dim; i += kWarp) {
    const Words4 four = row.quad(i);
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j)
      if (4 * i + j < row.dim) to[(4 * i + j) * 4] = static_cast<uint8_t>(rounding(float_of(four[j])));
  }
}

// Four bytes of two quads, the first one in the low halves.
TS_DEVICE_INLINE uint32_t nibble_word(const QuadRow& row, const Rounding& rounding, int32_t low, int32_t high) {
  const Words4 first = row.quad(low), second = row.quad(high);
  uint32_t word = 0;
  TS_EVERY_LANE
  for (int j = 0; j < 4; ++j) word |= static_cast<uint32_t>((rounding(float_of(first[j])) + 8) | (rounding(float_of(second[j])) + 8) << 4) << (8 * j);
  return word;
}

TS_DEVICE_INLINE void write_nibble_keys(const QuadRow& row, const Rounding& rounding, int32_t offset, uint8_t* keys) {
  for (int32_t i = warp_lane(); 8 * i < row.dim; i += kWarp)
    reinterpret_cast<uint32_t*>(keys)[i * 16 + offset] = nibble_word(row, rounding, 2 * i, 2 * i + 1);
}

TS_DEVICE_INLINE void write_nibble_values(const QuadRow& row, const Rounding& rounding, int32_t offset, uint8_t* values) {
  const int32_t blocks = (row.dim + 31) / 32;
  for (int32_t i = warp_lane(); i < 4 * blocks; i += kWarp) {
    const int32_t low = i / 4 * 8 + i % 4;
    const uint32_t word = nibble_word(row, rounding, low, low + 4);
    uint8_t* to = values + (offset / 4 * blocks + i / 4) * 64 + i % 4 * 16 + offset % 4;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) to[4 * j] = static_cast<uint8_t>(word >> (8 * j));
  }
}

TS_DEVICE_INLINE void write_float_values(int32_t kind, const float* v, int32_t dim, int32_t offset, uint8_t* values) {
  if (kind == TS_KV_F32) {
    for (int32_t d = thread_index(); d < dim; d += kGroupThreads) reinterpret_cast<float*>(values)[offset * dim + d] = v[d];
    return;
  }
  const int32_t even = (dim + 1) / 2 * 2;
  for (int32_t d = thread_index(); d < even; d += kGroupThreads)
    reinterpret_cast<uint16_t*>(values)[(offset / 2 * even + d) * 2 + offset % 2] = to_bf16(d < dim ? v[d] : 0.0f);
}

TS_KERNEL(kv_write, KVWriteArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), heads = static_cast<uint32_t>(args.layer.kv_heads);
  const uint32_t token = block / heads, head = block - token * heads;
  const int32_t kind = args.layer.kind, dim = args.layer.head_dim, value_dim = args.layer.value_dim;
  const float *k = args.k.data + token * args.k.stride + static_cast<int64_t>(head) * dim;
  const float* v = args.v.data + token * args.v.stride + static_cast<int64_t>(head) * value_dim;
  const int32_t slot = args.slots.data[token], offset = slot % TS_PAGE_TOKENS;
  const PageLayout& layout = args.pages;
  uint8_t* keys = layout.keys(slot / TS_PAGE_TOKENS, static_cast<int32_t>(head));
  uint8_t* values = layout.values(keys);
  if (!has_scales(kind)) {
    write_float_keys(kind, k, dim, offset, keys);
    return write_float_values(kind, v, value_dim, offset, values);
  }
  const bool nibbles = kind == TS_KV_INT4, of_keys = warp_index() == 0;
  const QuadRow row = {of_keys ? k : v, of_keys ? dim : value_dim};
  const Rounding rounding(row.extreme(nibbles), nibbles);
  if (warp_lane() == 0) reinterpret_cast<uint16_t*>(of_keys ? layout.key_scales(keys) : layout.value_scales(keys))[offset] = rounding.bits;
  if (of_keys && nibbles) write_nibble_keys(row, rounding, offset, keys);
  else if (of_keys) write_byte_keys(row, rounding, offset, keys);
  else if (nibbles) write_nibble_values(row, rounding, offset, values);
  else write_byte_values(row, rounding, offset, values);
}

}  // namespace cuda
}  // namespace twostroke
