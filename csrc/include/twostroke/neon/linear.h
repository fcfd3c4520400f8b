// What the ARMv8-A files of ts_linear share: vectors of four columns, the strips of a panel, products of bytes, the fold of one group.
#pragma once
#include <arm_neon.h>

#include "twostroke/linear.h"

namespace twostroke {

constexpr int kColumns = 4;                 // of one register

// Registers across a strip: one row crosses the panel in one strip, so that it streams; 16 accumulators at most leave 16 of the 32
// registers to weights and activations.
constexpr int strip_vectors(int rows) { return rows == 1 ? 16 : rows == 2 ? 8 : 4; }

// Four columns of four k: sums of the four products of each, added to the totals. The k are lane kLane of the activations.
template <int kLane>
TS_INLINE int32x4_t dot(int32x4_t total, int8x16_t weights, int8x16_t activations) {
  if constexpr (kLevel.dot_products) return vdotq_laneq_s32(total, weights, activations, kLane);
  // |weight| <= 128 and |activation| <= 127: two products fit 16 bits.
  const int8x16_t quad = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(activations), kLane));
  const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(quad)), high = vmull_high_s8(weights, quad);
  return vpadalq_s16(total, vpaddq_s16(low, high));
}

// Keeps the compiler from loading through p before v is known: what it loads too early pushes sums out of the registers.
template <class Vector>
TS_INLINE void load_after(const uint8_t** p, Vector& v) {
  __asm__("" : "+r"(*p), "+w"(v));
}

TS_INLINE float32x4_t load_bf16(const uint8_t* data) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(data)), 16));
}

// The kernel on bytes for 2..kTileRows rows, where there are matrix products (i8mm).
GroupKernel int8_matrix_kernel(int64_t rows);

template <int kRows, int kVectors>
using Integers = int32x4_t[kRows][kVectors];

template <int kRows, int kVectors>
TS_INLINE void clear(Integers<kRows, kVectors>& integers) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) integers[r][j] = vdupq_n_s32(0);
  }
}

// sums = fma(float(integers), x_scale * w_scale, sums) for a strip.
template <int kRows, int kVectors>
TS_INLINE void fold(const Integers<kRows, kVectors>& integers, const TileRows& x, int64_t group, const uint8_t* scales, float* sums) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const float32x4_t w_scale = load_bf16(scales + 2 * kColumns * j);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* at = sums + r * kPanel + kColumns * j;
      const float32x4_t scale = vmulq_f32(vdupq_n_f32(x.scales[group * x.pair_stride + r]), w_scale);
      vst1q_f32(at, vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(integers[r][j]), scale));
    }
  }
}

}  // namespace twostroke
