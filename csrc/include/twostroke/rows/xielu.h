// An activation with four numbers from the checkpoint: see src/twostroke/ops/rows/pointwise.py.
#pragma once
#include "twostroke/simd.h"
#include "twostroke/rows/softplus.h"

namespace twostroke {

// exp(x) - 1 for x <= 0. Near 0 it is computed by its series, because the difference would lose all digits.
TS_VECTOR_INLINE Vec exp_less_one(Vec x) {
  Vec p = set1(1.0f / 5040.0f);
  p = fma(p, x, set1(1.0f / 720.0f));
  p = fma(p, x, set1(1.0f / 120.0f));
  p = fma(p, x, set1(1.0f / 24.0f));
  p = fma(p, x, set1(1.0f / 6.0f));
  p = fma(p, x, set1(0.5f));
  const Vec near = fma(p * x, x, x), far = exp(x) - set1(1.0f);
  float a[kLanes], b[kLanes], of[kLanes];
  store(a, near);
  store(b, far);
  store(of, x);
  for (int i = 0; i < kLanes; ++i) a[i] = of[i] > -0.5f ? a[i] : b[i];
  return load(a);
}

struct Xielu {
  Vec rise, fall, line, eps;

  explicit Xielu(const float* numbers) {
    float alphas[kLanes];
    store(alphas, softplus(load_part(numbers, 2, 0.0f)));
    rise = set1(alphas[0]);
    fall = set1(numbers[2] + alphas[1]);
    line = set1(numbers[2]);
    eps = set1(numbers[3]);
  }

  Vec operator()(Vec each) const {
    const Vec held = zero() - max(zero() - each, zero() - eps);  // the smaller of x and eps
    float of[kLanes], above[kLanes], below[kLanes];
    store(of, each);
    store(above, fma(rise * each, each, line * each));
    store(below, fma(line, each, fall * (exp_less_one(held) - each)));
    for (int lane = 0; lane < kLanes; ++lane) above[lane] = of[lane] > 0.0f ? above[lane] : below[lane];
    return load(above);
  }
};

}  // namespace twostroke
