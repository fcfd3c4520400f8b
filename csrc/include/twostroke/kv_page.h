// Where K and V of one head lie in a page: K (head_dim, 16) transposed, then V (16, head_dim).
// Knows: the layout of ops/operands.py. Must not know: attention.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {

template <typename Element>
struct KVView {
  Element* data;
  int64_t kv_heads, head_dim;

  int64_t part() const { return TS_PAGE_TOKENS * head_dim; }
  Element* keys(int64_t page, int64_t head) const { return data + (page * kv_heads + head) * 2 * part(); }
  Element* values(int64_t page, int64_t head) const { return keys(page, head) + part(); }
};

template <typename Element>
KVView<Element> view_of(const ts_kv_layer* layer) {
  return {static_cast<Element*>(layer->data), layer->kv_heads, layer->head_dim};
}

inline int32_t check_layer(const ts_kv_layer* layer) {
  if (layer == nullptr || layer->data == nullptr) return TS_BAD_POINTER;
  if (layer->kind != TS_KV_F32 && layer->kind != TS_KV_BF16) return TS_BAD_FORMAT;
  return layer->kv_heads < 1 || layer->head_dim < 1 || layer->head_dim > 4096 || layer->num_pages < 0 ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace twostroke
