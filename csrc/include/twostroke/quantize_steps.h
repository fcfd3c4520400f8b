// Inside quantize_row and quantize_block: steps of 64 activations, as each instruction-set level does them.
#pragma once
#include "twostroke/plain/quantize_steps.h"

namespace twostroke {

// Defined at levels with vector_steps alone: in their own files, with the bits of the plain functions.
uint32_t vector_largest_bits(const float* x, int64_t steps);
int32_t vector_quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections);

// The largest |x| of 64 a step, as bits: a NaN, whose bits are above infinity's, wins.
inline uint32_t largest_bits(const float* x, int64_t steps) {
  if constexpr (kLevel.vector_steps) {
    return vector_largest_bits(x, steps);
  } else {
    return plain_largest_bits(x, steps);
  }
}

// q (64 a step) = round half to even of x * inverse; -8 * the sum of each 16 of them into sub_corrections (4 a step); returns the sum of all.
inline int32_t quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  if constexpr (kLevel.vector_steps) {
    return vector_quantize_steps(x, steps, inverse, q, sub_corrections);
  } else {
    return plain_quantize_steps(x, steps, inverse, q, sub_corrections);
  }
}

}  // namespace twostroke
