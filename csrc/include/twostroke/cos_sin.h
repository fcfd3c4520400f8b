// The function of rotary tables. It is a part of the C ABI (abi.h) with a header of its own: a library without it is whole, and Python then
// computes these tables in another way.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Computes the cosines and sines of angles from 0 to 2^27, bit for bit as ops/cos_sin.py. constants: quarter turns in a radian, three parts
// of a quarter turn, nine coefficients of the sine and ten of the cosine. Only the calling thread works.
int32_t ts_cos_sin(const double* angles, int64_t count, const double* constants, double* cosine, double* sine);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
