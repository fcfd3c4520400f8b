// The inner steps of quantize_row and quantize_block: 64 activations at a time, in the code of each instruction-set level.
#pragma once
#include "twostroke/plain/quantize_steps.h"

namespace twostroke {

// Only levels with vector_steps have these functions, in their own files, with the bits of the plain functions.
uint32_t vector_largest_bits(const float* x, int64_t steps);
int32_t vector_quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections);

// The largest |x| of steps of 64, as bits. A NaN has larger bits than infinity, so it is the largest.
inline uint32_t largest_bits(const float* x, int64_t steps) {
  if constexpr (kLevel.vector_steps) {
    return vector_largest_bits(x, steps);
  } else {
    return plain_largest_bits(x, steps);
  }
}

// Sets q (64 for each step) to x * inverse, rounded half to even. Writes -8 * the sum of each 16 of them into sub_corrections (4 for each
// step). Returns the sum of all.
inline int32_t quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  if constexpr (kLevel.vector_steps) {
    return vector_quantize_steps(x, steps, inverse, q, sub_corrections);
  } else {
    return plain_quantize_steps(x, steps, inverse, q, sub_corrections);
  }
}

}  // namespace twostroke
