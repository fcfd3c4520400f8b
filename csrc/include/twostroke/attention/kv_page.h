// Where K and V of one head lie in a page. f32: K (head_dim, 16), transposed, then V (16, head_dim). bf16: the same in pairs, which are two
// dimensions of K or two positions of V, because matrix registers need pairs. int8, int4: quads of bytes, which are four dimensions of a
// position's K or one dimension of the V of four positions, because dot products of bytes need quads. Then come 16 bf16 scales of K and 16
// of V. src/twostroke/ops/attention/kv_pages.py defines the layout.
// A layer of latents has K alone. Each of its positions has two scales: one for the first value_dim dimensions, and one for the dimensions
// after them.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {

constexpr int kQuad = 4;

// One integer. It is stored as q + 128 in K and as q in V, because dot products need these signs. In a row of K or V, 64 bytes are the
// quads of 16 positions or dimensions.
struct WholeByte {
  static constexpr int kParts = 1;  // quads that one stored quad holds
  uint8_t bits;
};

// Two integers, each stored as q + 8. The low half belongs to this quad, the high half to the next.
struct Nibbles {
  static constexpr int kParts = 2;
  uint8_t bits;
};

// Two bf16 numbers: dimensions 2i and 2i + 1 of one position's K, or one dimension of the V of positions 2i and 2i + 1.
struct Bf16Pair {
  uint16_t first, second;
};

inline bool has_scales(int32_t kind) { return kind == TS_KV_INT8 || kind == TS_KV_INT4; }

struct KVLayout {
  uint8_t* data;
  // key_bytes: the bytes of K of a page's 16 positions; value_row_bytes: the bytes of V of one position
  int64_t kv_heads, key_bytes, value_row_bytes, head_bytes;

  explicit KVLayout(const ts_kv_layer* layer) : data(static_cast<uint8_t*>(layer->data)), kv_heads(layer->kv_heads) {
    constexpr int64_t kWordElements[] = {1, 2, 4, 8};  // the elements in four bytes, by kind
    const int64_t dim = layer->head_dim, word = kWordElements[layer->kind], key_row_bytes = (dim + word - 1) / word * 4;
    key_bytes = key_row_bytes * TS_PAGE_TOKENS;
    const int64_t value_dim = layer->value_dim, value_words = (value_dim + word - 1) / word * 4;
    value_row_bytes = layer->kind == TS_KV_INT8 ? value_dim : layer->kind == TS_KV_INT4 ? (value_dim + 31) / 32 * 16 : value_words;
    if (layer->latent != 0) value_row_bytes = 0;
    head_bytes = key_bytes + TS_PAGE_TOKENS * value_row_bytes + (has_scales(layer->kind) ? 4 * TS_PAGE_TOKENS : 0);
  }
  uint8_t* keys(int64_t page, int64_t head) const { return data + (page * kv_heads + head) * head_bytes; }
  // The other parts of a head, given the place at which its K begins.
  uint8_t* values(uint8_t* keys) const { return keys + key_bytes; }
  uint8_t* key_scales(uint8_t* keys) const { return keys + key_bytes + TS_PAGE_TOKENS * value_row_bytes; }
  uint8_t* value_scales(uint8_t* keys) const { return key_scales(keys) + 2 * TS_PAGE_TOKENS; }
};

inline int32_t check_layer(const ts_kv_layer* layer) {
  if (layer == nullptr || layer->data == nullptr) return TS_BAD_POINTER;
  if (layer->kind < TS_KV_F32 || layer->kind > TS_KV_INT4) return TS_BAD_FORMAT;
  if (layer->kv_heads < 1 || layer->head_dim < 1 || layer->head_dim > 4096 || layer->num_pages < 0) return TS_BAD_SHAPE;
  if (layer->value_dim < 1 || layer->value_dim > 4096) return TS_BAD_SHAPE;
  return layer->latent != 0 && (layer->kv_heads != 1 || layer->value_dim > layer->head_dim) ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace twostroke
