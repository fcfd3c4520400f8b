// The layer norm of one vector. One pass computes the mean, one the squares of the distances from it, and one the result. Each sum is
// sixteen partial sums and then one fixed tree, so its bits depend on that vector alone.
#pragma once
#include "twostroke/simd.h"

namespace twostroke {
namespace {

// Sixteen lanes of the result.
TS_VECTOR_INLINE Vec normed(Vec x, Vec mean, Vec scale, Vec weight, Vec bias) { return fma((x - mean) * scale, weight, bias); }

// in and out may be the same memory.
inline void layer_norm_vector(const float* in, const float* weight, const float* bias, float eps, int64_t columns, float* out) {
  const int64_t rest = columns % kLanes, whole = columns - rest;
  const float count = static_cast<float>(columns);
  Vec sums = zero();
  for (int64_t i = 0; i < whole; i += kLanes) sums = sums + load(in + i);
  if (rest > 0) sums = sums + load_part(in + whole, rest, 0.0f);
  const float average = reduce_add(sums) / count;
  const Vec mean = set1(average);
  Vec squares = zero();
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec distance = load(in + i) - mean;
    squares = fma(distance, distance, squares);
  }
  if (rest > 0) {
    const Vec distance = load_part(in + whole, rest, average) - mean;  // 0 in the lanes after the row's last element
    squares = fma(distance, distance, squares);
  }
  const Vec scale = set1(1.0f / sqrtf(reduce_add(squares) / count + eps));
  for (int64_t i = 0; i < whole; i += kLanes)
    store(out + i, normed(load(in + i), mean, scale, load(weight + i), bias == nullptr ? zero() : load(bias + i)));
  if (rest > 0) {
    const Vec last_bias = bias == nullptr ? zero() : load_part(bias + whole, rest, 0.0f);
    const Vec last = normed(load_part(in + whole, rest, 0.0f), mean, scale, load_part(weight + whole, rest, 0.0f), last_bias);
    store_part(out + whole, rest, last);
  }
}

}  // namespace
}  // namespace twostroke
