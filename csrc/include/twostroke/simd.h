// Sixteen float32 lanes, the one vector type of the kernels that are written once for all levels.
// AVX-512: one register. AVX2: two. NEON (neon/simd.h): four. Generic: an array that the compiler may vectorize; it multiplies and
// adds apart, the others use fused multiply-add. Sums over lanes follow one fixed tree at every level.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(TS_LEVEL_AVX512) || defined(TS_LEVEL_AVX2)
#include "twostroke/registers.h"
#endif

#define TS_VECTOR_INLINE static inline __attribute__((always_inline))

namespace twostroke {

constexpr int kLanes = 16;

}  // namespace twostroke

#if defined(TS_LEVEL_NEON)
#include "twostroke/neon/simd.h"
#endif

namespace twostroke {

#if defined(TS_LEVEL_AVX512)

struct Vec {
  __m512 v;
};
// Keeps the compiler from loading through p before v is known: what it loads too early pushes sums out of the registers.
#if defined(TS_NO_WIDE_REGISTERS)  // AVX-512 is emulated
TS_VECTOR_INLINE void load_after(const float**, Vec*) {}
#else
TS_VECTOR_INLINE void load_after(const float** p, Vec* v) { __asm__("" : "+r"(*p), "+v"(v->v)); }
#endif
TS_VECTOR_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
TS_VECTOR_INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
TS_VECTOR_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
TS_VECTOR_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
TS_VECTOR_INLINE Vec load_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
TS_VECTOR_INLINE Vec load_int8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Sixteen 32-bit words, each two bf16 numbers.
struct Words {
  __m512i v;
};
TS_VECTOR_INLINE Words load_words(const void* p) { return {_mm512_loadu_si512(p)}; }
TS_VECTOR_INLINE Vec low_halves(Words a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
TS_VECTOR_INLINE Vec high_halves(Words a) {
  return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))))};
}
// Lanes [begin, end) of a, `fill` in the others.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const uint32_t below_end = end >= kLanes ? 0xFFFFu : end <= 0 ? 0u : (1u << end) - 1;
  const uint32_t below_begin = begin >= kLanes ? 0xFFFFu : begin <= 0 ? 0u : (1u << begin) - 1;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_begin), _mm512_set1_ps(fill), a.v)};
}
// a * 2^n, where the float n + 1.5 * 2^23 is given.
TS_VECTOR_INLINE Vec add_exponent(Vec a, Vec n) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(n.v), 23)))};
}
TS_VECTOR_INLINE __m256 lower(Vec a) { return _mm512_castps512_ps256(a.v); }
TS_VECTOR_INLINE __m256 upper(Vec a) { return _mm512_extractf32x8_ps(a.v, 1); }
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TS_VECTOR_INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
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
// Keeps the compiler from loading through p before v is known: what it loads too early pushes sums out of the registers.
TS_VECTOR_INLINE void load_after(const float** p, Vec* v) { __asm__("" : "+r"(*p), "+x"(v->lo)); }
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
TS_VECTOR_INLINE __m256 widen_int8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
TS_VECTOR_INLINE Vec load_int8(const int8_t* p) { return {widen_int8(p), widen_int8(p + 8)}; }
struct Words {
  __m256i lo, hi;
};
TS_VECTOR_INLINE Words load_words(const void* p) {
  const __m256i* at = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
TS_VECTOR_INLINE Vec low_halves(Words a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(a.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(a.hi, 16))};
}
TS_VECTOR_INLINE Vec high_halves(Words a) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(a.lo, mask)), _mm256_castsi256_ps(_mm256_and_si256(a.hi, mask))};
}
// Lanes [begin, end) of a, `fill` in the others.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), first = _mm256_set1_epi32(begin - 1), after = _mm256_set1_epi32(end);
  const __m256i lane_hi = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
  const __m256i lo = _mm256_and_si256(_mm256_cmpgt_epi32(lane, first), _mm256_cmpgt_epi32(after, lane));
  const __m256i hi = _mm256_and_si256(_mm256_cmpgt_epi32(lane_hi, first), _mm256_cmpgt_epi32(after, lane_hi));
  const __m256 other = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(other, a.lo, _mm256_castsi256_ps(lo)), _mm256_blendv_ps(other, a.hi, _mm256_castsi256_ps(hi))};
}
// a * 2^n, where the float n + 1.5 * 2^23 is given.
TS_VECTOR_INLINE __m256 add_exponent(__m256 a, __m256 n) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}
TS_VECTOR_INLINE Vec add_exponent(Vec a, Vec n) { return {add_exponent(a.lo, n.lo), add_exponent(a.hi, n.hi)}; }
TS_VECTOR_INLINE __m256 lower(Vec a) { return a.lo; }
TS_VECTOR_INLINE __m256 upper(Vec a) { return a.hi; }
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
TS_VECTOR_INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
TS_VECTOR_INLINE Vec round_even(Vec a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TS_VECTOR_INLINE __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) { return {_mm256_mul_ps(a.lo, power_of_two(n.lo)), _mm256_mul_ps(a.hi, power_of_two(n.hi))}; }

#elif !defined(TS_LEVEL_NEON)

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
// Lanes [begin, end) of a, `fill` in the others.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) { TS_EACH_LANE(i >= begin && i < end ? a.x[i] : fill); }
// a * 2^n, where the float n + 1.5 * 2^23 is given.
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
#if defined(TS_LEVEL_AVX512) || defined(TS_LEVEL_AVX2)
TS_VECTOR_INLINE float reduce_add(Vec a) {
  const __m256 eight = _mm256_add_ps(lower(a), upper(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
TS_VECTOR_INLINE float reduce_max(Vec a) {
  const __m256 eight = _mm256_max_ps(lower(a), upper(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#elif !defined(TS_LEVEL_NEON)
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
#endif

// to[i]: the largest lane of four[i].
#if defined(TS_LEVEL_AVX512)
TS_VECTOR_INLINE void store_maxima(const Vec (&four)[4], float* to) {
  const __m512 first = _mm512_max_ps(_mm512_unpacklo_ps(four[0].v, four[1].v), _mm512_unpackhi_ps(four[0].v, four[1].v));
  const __m512 second = _mm512_max_ps(_mm512_unpacklo_ps(four[2].v, four[3].v), _mm512_unpackhi_ps(four[2].v, four[3].v));
  const __m512d a = _mm512_castps_pd(first), b = _mm512_castps_pd(second);
  const Vec all = {_mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)))};
  const __m256 eight = _mm256_max_ps(lower(all), upper(all));
  _mm_storeu_ps(to, _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}
#else
TS_VECTOR_INLINE void store_maxima(const Vec (&four)[4], float* to) {
  for (int i = 0; i < 4; ++i) to[i] = reduce_max(four[i]);
}
#endif

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

// 2^a for a <= 0 by 2^n * polynomial (minimax for 2^r, r in [-1/2, 1/2]); relative error about 2^-23. Below -125 it is 2^-125, in
// effect 0; NaN stays NaN.
TS_VECTOR_INLINE Vec exp2_negative(Vec a) {
  const Vec x = max(set1(-125.0f), a);  // max returns its second operand where one is NaN
  const Vec shifted = x + set1(12582912.0f);  // 1.5 * 2^23: n is in the low bits
  const Vec r = x - (shifted - set1(12582912.0f));
  Vec p = set1(1.326472731307149e-3f);
  p = fma(p, r, set1(9.671512991189957e-3f));
  p = fma(p, r, set1(5.550733581185341e-2f));
  p = fma(p, r, set1(2.4022242426872253e-1f));
  p = fma(p, r, set1(6.931470036506653e-1f));
  return add_exponent(fma(p, r, set1(1.0f)), shifted);
}

// tanh by a ratio of two polynomials (Eigen's coefficients); relative error below 2^-21, NaN stays NaN.
TS_VECTOR_INLINE Vec tanh_ratio(Vec a) {
  const Vec x = min(set1(7.99881172180175781f), max(set1(-7.99881172180175781f), a));  // the second operand where one is NaN
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
