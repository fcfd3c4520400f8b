// Sixteen float32 lanes, the one vector type of the kernels that are written once for all levels.
// AVX-512: one register. AVX2: two. Generic: an array that the compiler may vectorize; it multiplies and adds apart, the other
// two use fused multiply-add. Sums over lanes follow one fixed tree at every level.
// Knows: registers. Must not know: kernels.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(TS_LEVEL_AVX512) || defined(TS_LEVEL_AVX2)
#include <immintrin.h>
#endif

#define TS_VECTOR_INLINE static inline __attribute__((always_inline))

namespace twostroke {

constexpr int kLanes = 16;

#if defined(TS_LEVEL_AVX512)

struct Vec {
  __m512 v;
};
TS_VECTOR_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
TS_VECTOR_INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
TS_VECTOR_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
TS_VECTOR_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
TS_VECTOR_INLINE Vec load_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec round_even(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) {  // a * 2^n, n whole and in [-126, 127]
  return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23)))};
}

#elif defined(TS_LEVEL_AVX2)

struct Vec {
  __m256 lo, hi;
};
TS_VECTOR_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TS_VECTOR_INLINE Vec set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TS_VECTOR_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TS_VECTOR_INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
TS_VECTOR_INLINE __m256 widen_bf16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
TS_VECTOR_INLINE Vec load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec round_even(Vec a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TS_VECTOR_INLINE __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) { return {_mm256_mul_ps(a.lo, power_of_two(n.lo)), _mm256_mul_ps(a.hi, power_of_two(n.hi))}; }

#else

struct Vec {
  float x[kLanes];
};
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
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { TS_EACH_LANE(a.x[i] + b.x[i]); }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { TS_EACH_LANE(a.x[i] - b.x[i]); }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { TS_EACH_LANE(a.x[i] * b.x[i]); }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { TS_EACH_LANE(a.x[i] / b.x[i]); }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { TS_EACH_LANE(a.x[i] * b.x[i] + c.x[i]); }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { TS_EACH_LANE(a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { TS_EACH_LANE(a.x[i] < b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE Vec round_even(Vec a) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves no fraction bits, for |x| < 2^22
  TS_EACH_LANE((a.x[i] + kMagic) - kMagic);
}
TS_VECTOR_INLINE float power_of_two(float n) {
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) { TS_EACH_LANE(a.x[i] * power_of_two(n.x[i])); }

#endif

// One tree for all levels: lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1.
TS_VECTOR_INLINE float reduce_add(Vec a) {
  float x[kLanes];
  store(x, a);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}
TS_VECTOR_INLINE float reduce_max(Vec a) {
  float x[kLanes];
  store(x, a);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}

// Up to 16 floats; lanes beyond `count` are `fill`.
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

// exp by 2^n * polynomial (Cephes' expf coefficients); relative error about 2^-22. Below -87.3 it is 2^-126, in effect 0.
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

}  // namespace twostroke
