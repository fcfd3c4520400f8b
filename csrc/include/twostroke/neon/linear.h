// Code that the ARMv8-A files of ts_linear share: registers of four columns, the strips of a panel, and products of bytes.
#pragma once
#include <arm_neon.h>

#include "twostroke/products/columns.h"

namespace twostroke {

constexpr int kColumns = 4;  // columns of one register

// Adds four columns of four k: the sum of the four products of each column is added to its total. The k are lane kLane of the activations.
template <int kLane>
TS_INLINE int32x4_t dot(int32x4_t total, int8x16_t weights, int8x16_t activations) {
  if constexpr (kLevel.dot_products) return vdotq_laneq_s32(total, weights, activations, kLane);
  // |weight| <= 128 and |activation| <= 127, so the sum of two products fits 16 bits.
  const int8x16_t quad = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(activations), kLane));
  const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(quad)), high = vmull_high_s8(weights, quad);
  return vpadalq_s16(total, vpaddq_s16(low, high));
}

// This keeps the compiler from loading through p before v is known. A value that is loaded too early takes a register from a sum.
template <class Vector>
TS_INLINE void load_after(const uint8_t** p, Vector& v) {
  __asm__("" : "+r"(*p), "+w"(v));
}

// Registers of four columns: see columns.h.
struct Columns128 {
  static constexpr int kCount = kColumns;
  typedef float32x4_t Floats;
  typedef int32x4_t Integers;

  // The registers across a strip. One row crosses the panel in one strip, so that it reads memory as a stream. At most 16 accumulators
  // leave 16 of the 32 registers to weights and activations.
  static constexpr int strip_vectors(int rows) { return rows == 1 ? 16 : rows == 2 ? 8 : 4; }

  static TS_INLINE Floats load(const float* at) { return vld1q_f32(at); }
  static TS_INLINE void store(float* to, Floats floats) { vst1q_f32(to, floats); }
  static TS_INLINE Floats all(float x) { return vdupq_n_f32(x); }
  static TS_INLINE Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
  static TS_INLINE Floats multiply_add(Floats a, Floats b, Floats sum) { return vfmaq_f32(sum, a, b); }
  static TS_INLINE Floats to_floats(Integers integers) { return vcvtq_f32_s32(integers); }
  static TS_INLINE Floats from_f32(const uint8_t* data) { return vreinterpretq_f32_u8(vld1q_u8(data)); }
  static TS_INLINE Floats from_bf16(const uint8_t* data) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(data)), 16));
  }
  static TS_INLINE Floats low_halves(const uint8_t* data) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(vld1q_u8(data)), 16));
  }
  static TS_INLINE Floats high_halves(const uint8_t* data) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(vld1q_u8(data)), vdupq_n_u32(0xffff0000u)));
  }

  // Adds the products of the first kWidth of the k that lie together. One register of columns takes all of them before the next register.
  template <class Weights, int kWidth, int kRows, int kVectors>
  static TS_INLINE void add_products(Floats (&totals)[kRows][kVectors], const uint8_t* data, const float* x, int64_t stride) {
    Floats values[kWidth][kRows];
    TS_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) values[i][r] = all(x[r * stride + i]);
    }
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      TS_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const Floats weights = Weights::at(data + 16 * j, i);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) totals[r][j] = multiply_add(values[i][r], weights, totals[r][j]);
      }
      if (kRows == 1) load_after(&data, totals[0][j]);
    }
  }
};

// The kernel on bytes for 2..kTileRows rows, at the level with matrix products (i8mm).
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

}  // namespace twostroke
