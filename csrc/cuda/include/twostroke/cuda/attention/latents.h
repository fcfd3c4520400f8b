// A page of latents as one thread reads it: one position's numbers as floats.
#pragma once
#include "twostroke/attention/kv_page.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

// One position in one page. Whole numbers have two scales: one for the latent, and one for the dimensions after it.
struct LatentPosition {
  const uint8_t* keys;
  int64_t offset, latent;
  int32_t kind;
  float scale, scale_turned;

  TS_MEMBER_INLINE LatentPosition(const ts_kv_layer& layer, const int32_t* pages, int64_t position)
      : keys(nullptr), offset(position % TS_PAGE_TOKENS), latent(layer.value_dim), kind(layer.kind), scale(1.0f), scale_turned(1.0f) {
    const KVLayout layout(&layer);
    uint8_t* found = layout.keys(pages[position / TS_PAGE_TOKENS], 0);
    keys = found;
    if (!has_scales(kind)) return;
    scale = widen(reinterpret_cast<const uint16_t*>(layout.key_scales(found))[offset]);
    scale_turned = widen(reinterpret_cast<const uint16_t*>(layout.value_scales(found))[offset]);
  }
  TS_MEMBER_INLINE float operator[](int64_t d) const {
    if (kind == TS_KV_F32) return reinterpret_cast<const float*>(keys)[d * TS_PAGE_TOKENS + offset];
    if (kind == TS_KV_BF16) return widen(reinterpret_cast<const uint16_t*>(keys)[(d / 2 * TS_PAGE_TOKENS + offset) * 2 + d % 2]);
    const float own = d < latent ? scale : scale_turned;
    if (kind == TS_KV_INT8) return static_cast<float>(keys[d / kQuad * 64 + offset * kQuad + d % kQuad] - 128) * own;
    const uint8_t both = keys[d / 8 * 64 + offset * kQuad + d % kQuad];
    return static_cast<float>((d % 8 < 4 ? both & 15 : both >> 4) - 8) * own;
  }
};

}  // namespace cuda
}  // namespace twostroke
