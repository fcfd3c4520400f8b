// log(1 + exp(x)) of sixteen lanes.
#pragma once
#include "twostroke/simd.h"

namespace twostroke {

// Returns 0 where x is finite, else NaN. It is added to a bounded function of x (exp), which would otherwise hide that x is not finite.
TS_VECTOR_INLINE Vec nan_unless_finite(Vec x) { return x - x; }

// log(1 + e) for e in [0, 1]. It is 2 atanh(s) with s = e / (2 + e) <= 1/3, computed by its series, with a relative error below 2^-23.
TS_VECTOR_INLINE Vec log_of_one_plus(Vec e) {
  const Vec s = e / (set1(2.0f) + e), square = s * s;
  Vec p = set1(2.0f / 15.0f);
  p = fma(p, square, set1(2.0f / 13.0f));
  p = fma(p, square, set1(2.0f / 11.0f));
  p = fma(p, square, set1(2.0f / 9.0f));
  p = fma(p, square, set1(2.0f / 7.0f));
  p = fma(p, square, set1(2.0f / 5.0f));
  p = fma(p, square, set1(2.0f / 3.0f));
  return s * fma(p, square, set1(2.0f));
}

// max(x, 0) + log(1 + exp(-|x|)); NaN where x is not finite.
TS_VECTOR_INLINE Vec softplus(Vec x) {
  return max(x, zero()) + log_of_one_plus(exp(zero() - max(x, zero() - x))) + nan_unless_finite(x);
}

}  // namespace twostroke
