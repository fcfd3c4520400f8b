// Sixteen float32 lanes as two registers of AVX2: the part of simd.h that depends on the instruction set.
#pragma once
#include "twostroke/lanes.h"
#include "twostroke/x86/registers.h"

namespace twostroke {

struct Vec {
  __m256 lo, hi;
};
// This keeps the compiler from loading through p before v is known. A value that is loaded too early takes a register from a sum.
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
// Keeps lanes [begin, end) of a; the others become `fill`.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), first = _mm256_set1_epi32(begin - 1), after = _mm256_set1_epi32(end);
  const __m256i lane_hi = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
  const __m256i lo = _mm256_and_si256(_mm256_cmpgt_epi32(lane, first), _mm256_cmpgt_epi32(after, lane));
  const __m256i hi = _mm256_and_si256(_mm256_cmpgt_epi32(lane_hi, first), _mm256_cmpgt_epi32(after, lane_hi));
  const __m256 other = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(other, a.lo, _mm256_castsi256_ps(lo)), _mm256_blendv_ps(other, a.hi, _mm256_castsi256_ps(hi))};
}
// a * 2^n. n is given as the float n + 1.5 * 2^23.
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

}  // namespace twostroke
#include "twostroke/x86/simd_sums.h"
