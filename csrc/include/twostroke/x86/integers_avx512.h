// Sixteen int32 lanes as one register of AVX-512: the part of integers.h that depends on the instruction set.
#pragma once
#include "twostroke/products/quad.h"
#include "twostroke/x86/simd_avx512.h"

namespace twostroke {

constexpr int32_t kByteZero = 128;  // the value that offset_bytes gives for a zero
constexpr bool kWordProducts = false;

struct Ints {
  __m512i v;
};
struct Quads {
  __m512i v;
};
TS_VECTOR_INLINE Ints set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
TS_VECTOR_INLINE Quads load_quads(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
TS_VECTOR_INLINE Quads offset_bytes(Quads a) { return a; }
struct SignedQuads {
  __m512i v;
};
TS_VECTOR_INLINE SignedQuads signed_bytes(Quads a) { return {a.v}; }
TS_VECTOR_INLINE Quads low_nibbles(Quads a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
TS_VECTOR_INLINE Quads high_nibbles(Quads a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }
TS_VECTOR_INLINE Ints multiply_add(Ints sum, Quads by, const int8_t* factors) {
  return {_mm512_dpbusd_epi32(sum.v, by.v, _mm512_set1_epi32(quad_of(factors)))};
}
TS_VECTOR_INLINE Ints multiply_add(Ints sum, SignedQuads by, const int8_t* factors) {
  return {_mm512_dpbusd_epi32(sum.v, _mm512_set1_epi32(quad_of(factors)), by.v)};
}
TS_VECTOR_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
TS_VECTOR_INLINE Ints times_128(Ints a) { return {_mm512_slli_epi32(a.v, 7)}; }
TS_VECTOR_INLINE Vec to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
TS_VECTOR_INLINE Ints magnitude_bits(Vec a) { return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff))}; }
TS_VECTOR_INLINE Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
TS_VECTOR_INLINE int32_t reduce_add(Ints a) { return _mm512_reduce_add_epi32(a.v); }
TS_VECTOR_INLINE int32_t reduce_max(Ints a) { return _mm512_reduce_max_epi32(a.v); }
// The low halves of 32 numbers, as words in order.
TS_VECTOR_INLINE __m512i low_words(Vec a, Vec b) {
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10,
                                        8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi16(_mm512_castps_si512(a.v), even, _mm512_castps_si512(b.v));
}
TS_VECTOR_INLINE void store_narrow(int8_t* to, __m512i first, __m512i second) {
  _mm512_storeu_si512(to, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packs_epi16(first, second)));
}
TS_VECTOR_INLINE void store_bytes(const Vec (&rounded)[4], int8_t* to) {
  store_narrow(to, low_words(rounded[0], rounded[1]), low_words(rounded[2], rounded[3]));
}
TS_VECTOR_INLINE Ints store_digits(const Vec (&rounded)[4], int8_t* high, int8_t* low) {
  const __m512i first = low_words(rounded[0], rounded[1]), second = low_words(rounded[2], rounded[3]);
  const __m512i mask = _mm512_set1_epi16(127), ones = _mm512_set1_epi16(1);
  store_narrow(high, _mm512_srai_epi16(first, 7), _mm512_srai_epi16(second, 7));
  store_narrow(low, _mm512_and_si512(first, mask), _mm512_and_si512(second, mask));
  return {_mm512_add_epi32(_mm512_madd_epi16(first, ones), _mm512_madd_epi16(second, ones))};
}

}  // namespace twostroke
