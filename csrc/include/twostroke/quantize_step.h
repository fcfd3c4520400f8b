// Inside quantize_row: 64 activations at a time, as each instruction-set level does it.
// Knows: the rounding rule. Must not know: groups, rows.
#pragma once
#include <stdint.h>

namespace twostroke {

// The largest |x| of 64, as bits: a NaN, whose bits are above infinity's, wins.
uint32_t largest_bits(const float* x);

// q (64) = round half to even of x * inverse; -8 * the sum of each 16 of them into sub_corrections (4); returns the sum of all.
int32_t quantize_step(const float* x, float inverse, int8_t* q, int32_t* sub_corrections);

}  // namespace twostroke
