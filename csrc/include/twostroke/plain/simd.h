// Sixteen float32 lanes as an array that the compiler may vectorize: the part of simd.h that depends on the instruction set.
#pragma once
#include <math.h>

#include "twostroke/lanes.h"

namespace twostroke {

struct Vec {
  float x[kLanes];
};
TS_VECTOR_INLINE void load_after(const float**, Vec*) {}
#define TS_EACH_LANE(expression)                  \
  Vec r;                                          \
  for (int i = 0; i < kLanes; ++i) r.x[i] = (expression); \
  return r
TS_VECTOR_INLINE Vec set1(float x) { TS_EACH_LANE(x); }
TS_VECTOR_INLINE Vec zero() { return set1(0.0f); }
TS_VECTOR_INLINE Vec load(const float* p) { TS_EACH_LANE(p[i]); }
TS_VECTOR_INLINE void store(float* p, Vec a) { memcpy(p, a.x, sizeof a.x); }
TS_VECTOR_INLINE float widen_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
TS_VECTOR_INLINE Vec load_bf16(const uint16_t* p) { TS_EACH_LANE(widen_bf16(p[i])); }
TS_VECTOR_INLINE Vec load_int8(const int8_t* p) { TS_EACH_LANE(static_cast<float>(p[i])); }
struct Words {
  uint16_t x[2 * kLanes];
};
TS_VECTOR_INLINE Words load_words(const void* p) {
  Words r;
  memcpy(r.x, p, sizeof r.x);
  return r;
}
TS_VECTOR_INLINE Vec low_halves(Words a) { TS_EACH_LANE(widen_bf16(a.x[2 * i])); }
TS_VECTOR_INLINE Vec high_halves(Words a) { TS_EACH_LANE(widen_bf16(a.x[2 * i + 1])); }
// Keeps lanes [begin, end) of a; the others become `fill`.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) { TS_EACH_LANE(i >= begin && i < end ? a.x[i] : fill); }
// a * 2^n. n is given as the float n + 1.5 * 2^23.
TS_VECTOR_INLINE float add_exponent(float a, float n) {
  uint32_t bits, exponent;
  memcpy(&bits, &a, 4);
  memcpy(&exponent, &n, 4);
  bits += exponent << 23;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
TS_VECTOR_INLINE Vec add_exponent(Vec a, Vec n) { TS_EACH_LANE(add_exponent(a.x[i], n.x[i])); }
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { TS_EACH_LANE(a.x[i] + b.x[i]); }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { TS_EACH_LANE(a.x[i] - b.x[i]); }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { TS_EACH_LANE(a.x[i] * b.x[i]); }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { TS_EACH_LANE(a.x[i] / b.x[i]); }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { TS_EACH_LANE(a.x[i] * b.x[i] + c.x[i]); }
TS_VECTOR_INLINE Vec sqrt(Vec a) { TS_EACH_LANE(sqrtf(a.x[i])); }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { TS_EACH_LANE(a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { TS_EACH_LANE(a.x[i] < b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE Vec round_even(Vec a) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23; adding it leaves no fraction bits, for |x| < 2^22
  TS_EACH_LANE((a.x[i] + kMagic) - kMagic);
}
TS_VECTOR_INLINE float power_of_two(float n) {
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) { TS_EACH_LANE(a.x[i] * power_of_two(n.x[i])); }

// Adds the lanes by the tree of simd.h.
TS_VECTOR_INLINE float reduce_add(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.x[i] += a.x[i + half];
  return a.x[0];
}
TS_VECTOR_INLINE float reduce_max(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.x[i] = a.x[i] > a.x[i + half] ? a.x[i] : a.x[i + half];
  return a.x[0];
}

}  // namespace twostroke
