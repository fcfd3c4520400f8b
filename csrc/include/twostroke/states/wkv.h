// Code that the scans of RWKV share: rows of one head by sixteen lanes, and the norm of a head's output.
#pragma once
#include <math.h>

#include "twostroke/simd.h"
#include "twostroke/states/states.h"

namespace twostroke {

constexpr int kTokensAtOnce = 8;  // tokens whose factors are prepared at once

// Calls apply(i, count) for each sixteen of `length` numbers. At the end, count may be less than sixteen.
template <class Apply>
TS_VECTOR_INLINE void each_lanes(int64_t length, const Apply& apply) {
  for (int64_t i = 0; i < length; i += kLanes) apply(i, length - i < kLanes ? length - i : static_cast<int64_t>(kLanes));
}

TS_VECTOR_INLINE Vec load_lanes(const float* from, int64_t count) { return count == kLanes ? load(from) : load_part(from, count, 0.0f); }

TS_VECTOR_INLINE void store_lanes(float* to, int64_t count, Vec x) {
  if (count == kLanes) store(to, x);
  else store_part(to, count, x);
}

// Computes x = (x - mean) / sqrt(variance + eps) * weight + bias over x.
inline void norm_of_head(float* x, const float* weight, const float* bias, float eps, int64_t length) {
  Vec sum = zero(), squares = zero();
  each_lanes(length, [&](int64_t i, int64_t count) { sum = sum + load_part(x + i, count, 0.0f); });
  const float mean = reduce_add(sum) / static_cast<float>(length);
  each_lanes(length, [&](int64_t i, int64_t count) {
    const Vec apart = load_part(x + i, count, mean) - set1(mean);
    squares = fma(apart, apart, squares);
  });
  const Vec scale = set1(1.0f / sqrtf(reduce_add(squares) / static_cast<float>(length) + eps));
  each_lanes(length, [&](int64_t i, int64_t count) {
    const Vec apart = load_part(x + i, count, 0.0f) - set1(mean);
    store_part(x + i, count, fma(apart * scale, load_part(weight + i, count, 0.0f), load_part(bias + i, count, 0.0f)));
  });
}

}  // namespace twostroke
