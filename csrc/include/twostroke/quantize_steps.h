// Inside quantize_row and quantize_block: steps of 64 activations, as each instruction-set level does them.
#pragma once
#include <stdint.h>

namespace twostroke {

// The largest |x| of 64 a step, as bits: a NaN, whose bits are above infinity's, wins.
uint32_t largest_bits(const float* x, int64_t steps);

// q (64 a step) = round half to even of x * inverse; -8 * the sum of each 16 of them into sub_corrections (4 a step); returns the sum of all.
int32_t quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections);

}  // namespace twostroke
