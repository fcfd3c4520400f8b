// Sixteen float32 lanes, the only vector type of the kernels that are written once for all levels. It is one register of AVX-512, two of
// AVX2, or four of NEON. In plain C++ it is an array that the compiler may vectorize. Plain C++ multiplies and adds separately; the others
// use fused multiply-add.
// Sums over lanes follow one fixed tree at every level: lanes i and i + 8, then 4, 2 and 1 lanes apart.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/simd_avx512.h"
#elif defined(TS_LEVEL_AVX2)
#include "twostroke/x86/simd_avx2.h"
#elif defined(TS_LEVEL_NEON)
#include "twostroke/neon/simd.h"
#else
#include "twostroke/plain/simd.h"
#endif

namespace twostroke {

// to[i] becomes the largest lane of four[i]. An instruction set may have a quicker function for its own Vec.
template <class Lanes>
TS_VECTOR_INLINE void store_maxima(const Lanes (&four)[4], float* to) {
  for (int i = 0; i < 4; ++i) to[i] = reduce_max(four[i]);
}

// Loads up to 16 floats. Lanes after `count` become `fill`.
TS_VECTOR_INLINE Vec load_part(const float* p, int64_t count, float fill) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = i < count ? p[i] : fill;
  return load(x);
}
TS_VECTOR_INLINE void store_part(float* p, int64_t count, Vec a) {
  float x[kLanes];
  store(x, a);
  for (int64_t i = 0; i < count; ++i) p[i] = x[i];
}

// exp as 2^n * polynomial (Cephes' expf coefficients), with a relative error of about 2^-22. Below -87.3 the result is 2^-126, in effect 0.
TS_VECTOR_INLINE Vec exp(Vec a) {
  const Vec x = min(max(a, set1(-87.3f)), set1(88.0f));
  const Vec n = round_even(x * set1(1.44269504088896341f));
  Vec r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  Vec p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  return scale_by_power(fma(p, r * r, r + set1(1.0f)), n);
}

// 2^a for a <= 0 as 2^n * polynomial (minimax for 2^r, r in [-1/2, 1/2]), with a relative error of about 2^-23. Below -125 the result is
// 2^-125, in effect 0. NaN stays NaN.
TS_VECTOR_INLINE Vec exp2_negative(Vec a) {
  const Vec x = max(set1(-125.0f), a);  // max returns its second operand where one is NaN
  const Vec shifted = x + set1(12582912.0f);  // 1.5 * 2^23; n is then in the low bits
  const Vec r = x - (shifted - set1(12582912.0f));
  Vec p = set1(1.326472731307149e-3f);
  p = fma(p, r, set1(9.671512991189957e-3f));
  p = fma(p, r, set1(5.550733581185341e-2f));
  p = fma(p, r, set1(2.4022242426872253e-1f));
  p = fma(p, r, set1(6.931470036506653e-1f));
  return add_exponent(fma(p, r, set1(1.0f)), shifted);
}

// tanh as a ratio of two polynomials (Eigen's coefficients), with a relative error below 2^-21. NaN stays NaN.
TS_VECTOR_INLINE Vec tanh_ratio(Vec a) {
  // min and max return the second operand where one is NaN
  const Vec x = min(set1(7.99881172180175781f), max(set1(-7.99881172180175781f), a));
  const Vec s = x * x;
  Vec p = set1(-2.76076847742355e-16f);
  p = fma(p, s, set1(2.00018790482477e-13f));
  p = fma(p, s, set1(-8.60467152213735e-11f));
  p = fma(p, s, set1(5.12229709037114e-08f));
  p = fma(p, s, set1(1.48572235717979e-05f));
  p = fma(p, s, set1(6.37261928875436e-04f));
  p = fma(p, s, set1(4.89352455891786e-03f));
  Vec q = set1(1.19825839466702e-06f);
  q = fma(q, s, set1(1.18534705686654e-04f));
  q = fma(q, s, set1(2.26843463243900e-03f));
  q = fma(q, s, set1(4.89352518554385e-03f));
  return p * x / q;
}

}  // namespace twostroke
