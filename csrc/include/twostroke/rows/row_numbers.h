// Further numbers of a row of logits for samplers, in addition to ts_weigh of abi.h, bit for bit as ops/attention/token_weights.py.
// Exponents are those of ts_weigh before rounding. Each function returns 0 or a negative ts_status.
#pragma once
#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Rounds minus the exponents to multiples of 2^-16 and multiplies them by the upper bits of the weights, and by their lower 22 bits.
// sums: receives both sums.
int32_t ts_exponent_sums(const float* logits, const uint64_t* weights, int64_t count, double peak, double scale, uint64_t* sums);

// out: receives minus the distance of each exponent from `mean`.
int32_t ts_nearness(const float* logits, int64_t count, double peak, double scale, double mean, double* out);

// Rounds the distances from the peak, of at most `most` (2^16), to multiples of 2^-16. sums: receives the sum of these numbers, of the
// squares of their upper bits, of upper bits times lower 12 bits, and of the squares of lower bits.
int32_t ts_spread_sums(const float* logits, int64_t count, double peak, double most, uint64_t* sums);

// probabilities: receives each weight divided by `total`. scores: receives best - sharpness * d^2 / (1 + d), where d is the distance of the
// probability from `aim` divided by `width`.
int32_t ts_score_near(const uint64_t* weights, int64_t count, double total, double aim, double width, double best, double sharpness,
                      double* probabilities, float* scores);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
