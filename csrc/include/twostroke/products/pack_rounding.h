// Code that rounds floats when weights are packed. 64 rows are the lanes of a block (columns, 64), and ts_pack's formats share these steps.
// src/twostroke/ops/quant defines the results.
#pragma once
#include "twostroke/products/linear.h"

namespace twostroke {

constexpr float kZeroBelow = 0x1p-100f;

// Rounds half to even, for |value| < 2^22.
TS_INLINE float round_even(float value) { return (value + 12582912.0f) - 12582912.0f; }

TS_INLINE float clip(float value, float low, float high) {
  const float above = value < low ? low : value;
  return above > high ? high : above;
}

TS_INLINE float inverse_of(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

TS_INLINE float magnitude_of(float value) { return value < 0.0f ? -value : value; }

// Finds each lane's value of largest magnitude; on a tie, the smallest value.
inline void extremes(const float* block, int64_t width, float* extreme) {
  float low[kPanel], high[kPanel];
  memcpy(low, block, sizeof(low));
  memcpy(high, block, sizeof(high));
  for (int64_t k = 1; k < width; ++k) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float value = block[k * kPanel + r];
      low[r] = value < low[r] ? value : low[r];
      high[r] = value > high[r] ? value : high[r];
    }
  }
  for (int64_t r = 0; r < kPanel; ++r) extreme[r] = -low[r] >= high[r] ? low[r] : high[r];
}

// Packs a group of `width` columns in the form of SUPER6: see pack_super6.cpp.
void pack_super6(const float* block, int64_t width, uint8_t* data);

}  // namespace twostroke
