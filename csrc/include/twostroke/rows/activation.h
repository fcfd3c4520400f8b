// The activation functions. Their numbers are those of src/twostroke/ops/rows/activation.py.
#pragma once
#include "twostroke/simd.h"
#include "twostroke/rows/softplus.h"

namespace twostroke {

enum Activation {
  kSilu = 0, kGelu = 1, kGeluTanh = 2, kRelu = 3, kRelu2 = 4, kSigmoid = 5, kIdentity = 6, kQuickGelu = 7, kSoftplus = 8, kExp = 9
};

TS_VECTOR_INLINE Vec sigmoid(Vec x) { return set1(1.0f) / (set1(1.0f) + exp(zero() - x)); }

TS_VECTOR_INLINE Vec silu(Vec x) { return x / (set1(1.0f) + exp(zero() - x)); }

TS_VECTOR_INLINE Vec quick_gelu(Vec x) { return x / (set1(1.0f) + exp(set1(-1.702f) * x)); }

// tanh u = 1 - 2 / (exp(2u) + 1); exp is bounded, so both ends are -1 and 1.
TS_VECTOR_INLINE Vec tanh(Vec u) { return set1(1.0f) - set1(2.0f) / (exp(u + u) + set1(1.0f)); }

TS_VECTOR_INLINE Vec gelu_tanh(Vec x) {
  const Vec u = set1(0.7978845608028654f) * fma(set1(0.044715f) * x * x, x, x);
  return set1(0.5f) * x * (set1(1.0f) + tanh(u));
}

// erf is the approximation 7.1.26 of Abramowitz and Stegun, with an error below 1.5e-7.
TS_VECTOR_INLINE Vec gelu(Vec x) {
  const Vec a = max(x, zero() - x) * set1(0.7071067811865476f);
  const Vec t = set1(1.0f) / fma(set1(0.3275911f), a, set1(1.0f));
  Vec p = set1(1.061405429f);
  p = fma(p, t, set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  const Vec tail = p * t * exp(zero() - a * a);  // 1 - erf(a) for a >= 0
  // For x >= 0 the result is x (2 - tail) / 2, and for x < 0 it is x tail / 2. One formula gives both: max(x, 0) - |x| tail / 2.
  return max(x, zero()) - max(x, zero() - x) * set1(0.5f) * tail;
}

TS_VECTOR_INLINE Vec relu2(Vec x) {
  const Vec kept = max(x, zero());
  return kept * kept;
}

// Calls apply(function) with the function of this number. Returns false where there is none.
template <class Apply>
TS_VECTOR_INLINE bool with_activation(int64_t number, const Apply& apply) {
  switch (number) {
    case kSilu: apply([](Vec x) { return silu(x); }); return true;
    case kGelu: apply([](Vec x) { return gelu(x); }); return true;
    case kGeluTanh: apply([](Vec x) { return gelu_tanh(x); }); return true;
    case kRelu: apply([](Vec x) { return max(x, zero()); }); return true;
    case kRelu2: apply([](Vec x) { return relu2(x); }); return true;
    case kSigmoid: apply([](Vec x) { return sigmoid(x); }); return true;
    case kIdentity: apply([](Vec x) { return x; }); return true;
    case kQuickGelu: apply([](Vec x) { return quick_gelu(x); }); return true;
    case kSoftplus: apply([](Vec x) { return softplus(x); }); return true;
    case kExp: apply([](Vec x) { return exp(x) + nan_unless_finite(x); }); return true;
    default: return false;
  }
}

}  // namespace twostroke
