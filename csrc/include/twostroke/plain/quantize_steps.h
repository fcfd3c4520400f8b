// Steps of 64 activations as quantize_steps.h defines them, in plain C++.
#pragma once
#include "twostroke/products/linear.h"

namespace twostroke {

inline uint32_t plain_largest_bits(const float* x, int64_t steps) {
  uint32_t best = 0;
  for (int64_t i = 0; i < steps * kStep; ++i) {
    const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    best = bits > best ? bits : best;
  }
  return best;
}

// |x * inverse| < 2^22, so after adding 1.5 * 2^23 the rounded integer is in the low mantissa bits.
inline int32_t plain_quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  for (int64_t i = 0; i < steps * kStep; ++i) {
    q[i] = static_cast<int8_t>(static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u));
  }
  int32_t total = 0;
  for (int64_t n = 0; n < steps * kStep / kSubgroup; ++n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSubgroup; ++i) sum += q[n * kSubgroup + i];
    sub_corrections[n] = -8 * sum;
    total += sum;
  }
  return total;
}

}  // namespace twostroke
