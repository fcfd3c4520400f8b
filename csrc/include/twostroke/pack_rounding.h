// What rounds floats when weights are packed, 64 rows in the lanes of a block (columns, 64): the steps that ts_pack's formats share. The
// law is src/twostroke/ops/quant.
#pragma once
#include "twostroke/linear.h"

namespace twostroke {

constexpr float kZeroBelow = 0x1p-100f;

// Round half to even for |value| < 2^22.
TS_INLINE float round_even(float value) { return (value + 12582912.0f) - 12582912.0f; }

TS_INLINE float clip(float value, float low, float high) {
  const float above = value < low ? low : value;
  return above > high ? high : above;
}

TS_INLINE float inverse_of(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

TS_INLINE float magnitude_of(float value) { return value < 0.0f ? -value : value; }

// Each lane's value of largest magnitude, the smallest on a tie.
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

// A group of `width` columns as SUPER6 has it: pack_super6.cpp.
void pack_super6(const float* block, int64_t width, uint8_t* data);

}  // namespace twostroke
