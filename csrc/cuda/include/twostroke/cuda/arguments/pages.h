// Where K and V of one head lie in a page: the numbers of KVLayout. The host computes them, because they need divisions.
#pragma once
#include <stdint.h>

#include "twostroke/attention/kv_page.h"

namespace twostroke {
namespace cuda {

struct PageLayout {
  uint8_t* data;
  uint32_t kv_heads, key_bytes, value_row_bytes, head_bytes;

  uint8_t* keys(int32_t page, int32_t head) const { return data + static_cast<uint64_t>(static_cast<uint32_t>(page) * kv_heads + static_cast<uint32_t>(head)) * head_bytes; }
  // The other parts of a head, given the place at which its K begins.
  uint8_t* values(uint8_t* keys) const { return keys + key_bytes; }
  uint8_t* key_scales(uint8_t* keys) const { return keys + (key_bytes + TS_PAGE_TOKENS * value_row_bytes); }
  uint8_t* value_scales(uint8_t* keys) const { return key_scales(keys) + 2 * TS_PAGE_TOKENS; }
};

// For pages of K and V. Their sizes fit in 32 bits, and so does the number of a page's head.
inline PageLayout page_layout(const ts_kv_layer& layer) {
  const KVLayout layout(&layer);
  const auto small = [](int64_t number) { return static_cast<uint32_t>(number); };
  return {layout.data, small(layout.kv_heads), small(layout.key_bytes), small(layout.value_row_bytes), small(layout.head_bytes)};
}

}  // namespace cuda
}  // namespace twostroke
