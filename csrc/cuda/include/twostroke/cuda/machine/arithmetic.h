// Functions of one number. Operation by operation they equal those of simd.h and activation.h at the levels with fused multiply-add, so
// they give the same bits. A change there needs the same change here; tests/cuda compares both.
#pragma once
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

constexpr int kLanes = 16;  // partial sums of a row: lane i has the elements i, i + 16, i + 32 ...
constexpr float kRounder = 12582912.0f;  // the value 1.5 * 2^23; adding it rounds to whole numbers, ties to even
constexpr float kLog2E = 1.44269504088896341f;

TS_DEVICE_INLINE float exp(float a) {
  const float x = smaller(larger(a, -87.3f), 88.0f);
  const float n = __builtin_rintf(x * 1.44269504088896341f);
  float r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  const float power = float_of(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return fma(p, r * r, r + 1.0f) * power;
}

// 2^a for a <= 0. Below -125 the result is 2^-125.
TS_DEVICE_INLINE float exp2_negative(float a) {
  const float x = larger(-125.0f, a);
  const float shifted = x + kRounder;
  const float r = x - (shifted - kRounder);
  float p = 1.326472731307149e-3f;
  p = fma(p, r, 9.671512991189957e-3f);
  p = fma(p, r, 5.550733581185341e-2f);
  p = fma(p, r, 2.4022242426872253e-1f);
  p = fma(p, r, 6.931470036506653e-1f);
  return float_of(bits_of(fma(p, r, 1.0f)) + (bits_of(shifted) << 23));
}

TS_DEVICE_INLINE float tanh_ratio(float a) {
  const float x = smaller(7.99881172180175781f, larger(-7.99881172180175781f, a));
  const float s = x * x;
  float p = -2.76076847742355e-16f;
  p = fma(p, s, 2.00018790482477e-13f);
  p = fma(p, s, -8.60467152213735e-11f);
  p = fma(p, s, 5.12229709037114e-08f);
  p = fma(p, s, 1.48572235717979e-05f);
  p = fma(p, s, 6.37261928875436e-04f);
  p = fma(p, s, 4.89352455891786e-03f);
  float q = 1.19825839466702e-06f;
  q = fma(q, s, 1.18534705686654e-04f);
  q = fma(q, s, 2.26843463243900e-03f);
  q = fma(q, s, 4.89352518554385e-03f);
  return p * x / q;
}

TS_DEVICE_INLINE float tanh(float u) { return 1.0f - 2.0f / (exp(u + u) + 1.0f); }

TS_DEVICE_INLINE float gelu(float x) {
  const float magnitude = larger(x, 0.0f - x), a = magnitude * 0.7071067811865476f;
  const float t = 1.0f / fma(0.3275911f, a, 1.0f);
  float p = 1.061405429f;
  p = fma(p, t, -1.453152027f);
  p = fma(p, t, 1.421413741f);
  p = fma(p, t, -0.284496736f);
  p = fma(p, t, 0.254829592f);
  const float tail = p * t * exp(0.0f - a * a);
  return larger(x, 0.0f) - magnitude * 0.5f * tail;
}

// Returns 0 where x is finite, else NaN. It is added to a bounded function of x (exp), which would otherwise hide that x is not finite.
TS_DEVICE_INLINE float nan_unless_finite(float x) { return x - x; }

// log(1 + e) for e in [0, 1], as in softplus.h.
TS_DEVICE_INLINE float log_of_one_plus(float e) {
  const float s = e / (2.0f + e), square = s * s;
  float p = 2.0f / 15.0f;
  p = fma(p, square, 2.0f / 13.0f);
  p = fma(p, square, 2.0f / 11.0f);
  p = fma(p, square, 2.0f / 9.0f);
  p = fma(p, square, 2.0f / 7.0f);
  p = fma(p, square, 2.0f / 5.0f);
  p = fma(p, square, 2.0f / 3.0f);
  return s * fma(p, square, 2.0f);
}

// max(x, 0) + log(1 + exp(-|x|)); NaN where x is not finite.
TS_DEVICE_INLINE float softplus(float x) {
  return larger(x, 0.0f) + log_of_one_plus(exp(0.0f - larger(x, 0.0f - x))) + nan_unless_finite(x);
}

// The activations have the numbers of src/twostroke/ops/rows/activation.py.
TS_DEVICE_INLINE float activated(int64_t activation, float x) {
  switch (activation) {
    case 0: return x / (1.0f + exp(0.0f - x));
    case 1: return gelu(x);
    case 2: {
      const float u = 0.7978845608028654f * fma(0.044715f * x * x, x, x);
      return 0.5f * x * (1.0f + tanh(u));
    }
    case 3: return larger(x, 0.0f);
    case 4: {
      const float kept = larger(x, 0.0f);
      return kept * kept;
    }
    case 5: return 1.0f / (1.0f + exp(0.0f - x));
    case 7: return x / (1.0f + exp(-1.702f * x));
    case 8: return softplus(x);
    case 9: return exp(x) + nan_unless_finite(x);
    default: return x;
  }
}

// float32 to bf16 bits, with ties to even; NaN stays NaN.
TS_DEVICE_INLINE uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

TS_DEVICE_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(0.0f - x)); }

// An array stays in registers only where every loop over it is unrolled.
#if defined(TS_EMULATED)  // a CPU has no use for it, and it makes compiling several times as long
#define TS_EVERY_LANE _Pragma("clang loop unroll(disable)")
#else
#define TS_EVERY_LANE _Pragma("clang loop unroll(full)")
#endif
// For loops that are seldom long: code that a block runs only once must be fetched first.
#define TS_ONE_BY_ONE _Pragma("clang loop unroll(disable)")

TS_DEVICE_INLINE uint32_t larger_bits(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The largest number, and the sum, over `lanes` consecutive threads.
TS_DEVICE_INLINE uint32_t most_of_threads(uint32_t most, int32_t lanes) {
  for (int32_t mask = lanes / 2; mask > 0; mask /= 2) most = larger_bits(most, shuffle_across(most, mask));
  return most;
}
TS_DEVICE_INLINE int32_t sum_of_threads(int32_t sum, int32_t lanes) {
  for (int32_t mask = lanes / 2; mask > 0; mask /= 2) sum += static_cast<int32_t>(shuffle_across(static_cast<uint32_t>(sum), mask));
  return sum;
}

// Adds lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1: the one tree of simd.h.
TS_DEVICE_INLINE float sum_tree(float (&lanes)[kLanes]) {
  TS_EVERY_LANE
  for (int half = kLanes / 2; half > 0; half /= 2) {
    TS_EVERY_LANE
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

}  // namespace cuda
}  // namespace twostroke
