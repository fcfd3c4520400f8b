// Sixteen float32 lanes as one register of AVX-512: the part of simd.h that depends on the instruction set.
#pragma once
#include "twostroke/lanes.h"
#include "twostroke/x86/registers.h"

namespace twostroke {

struct Vec {
  __m512 v;
};
// This keeps the compiler from loading through p before v is known. A value that is loaded too early takes a register from a sum.
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
// Keeps lanes [begin, end) of a; the others become `fill`.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const uint32_t below_end = end >= kLanes ? 0xFFFFu : end <= 0 ? 0u : (1u << end) - 1;
  const uint32_t below_begin = begin >= kLanes ? 0xFFFFu : begin <= 0 ? 0u : (1u << begin) - 1;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_begin), _mm512_set1_ps(fill), a.v)};
}
// a * 2^n. n is given as the float n + 1.5 * 2^23.
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
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) {  // a * 2^n for a whole number n in [-126, 127]
  return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23)))};
}

// Does what store_maxima of simd.h does, in fewer steps.
TS_VECTOR_INLINE void store_maxima(const Vec (&four)[4], float* to) {
  const __m512 first = _mm512_max_ps(_mm512_unpacklo_ps(four[0].v, four[1].v), _mm512_unpackhi_ps(four[0].v, four[1].v));
  const __m512 second = _mm512_max_ps(_mm512_unpacklo_ps(four[2].v, four[3].v), _mm512_unpackhi_ps(four[2].v, four[3].v));
  const __m512d a = _mm512_castps_pd(first), b = _mm512_castps_pd(second);
  const Vec all = {_mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)))};
  const __m256 eight = _mm256_max_ps(lower(all), upper(all));
  _mm_storeu_ps(to, _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}

}  // namespace twostroke
#include "twostroke/x86/simd_sums.h"
