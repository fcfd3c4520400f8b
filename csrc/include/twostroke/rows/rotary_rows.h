// The function of rotary tables. It is a part of the C ABI (abi.h) with a header of its own: a library without it is whole, and Python then
// computes these tables in another way.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Writes rows of a rotary table, bit for bit as ops/attention/rope_tables.py. Row p has the cosine and the sine of max(p - back, 0) *
// frequency for each pair, times a factor. constants: those of ops/cos_sin.py. cosine, sine: (rows, pairs). Angles lie
// between 0 and 2^27. Only the calling thread works.
int32_t ts_rotary_rows(const double* frequencies, int64_t pairs, int64_t rows, int64_t back, const double* constants, double cosine_factor,
                       double sine_factor, float* cosine, float* sine);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
