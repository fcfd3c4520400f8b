// Sixteen int32 lanes as two registers of AVX2: the part of integers.h that depends on the instruction set.
#pragma once
#include "twostroke/products/quad.h"
#include "twostroke/x86/bytes_avx2.h"
#include "twostroke/x86/simd_avx2.h"

namespace twostroke {

constexpr int32_t kByteZero = kAnyBytes ? 128 : 0;  // the value that offset_bytes gives for a zero
constexpr bool kWordProducts = !kAnyBytes;  // products of words take fewer instructions here than those of bytes: attention_words.h

struct Ints {
  __m256i lo, hi;
};
struct Quads {
  __m256i lo, hi;
};
struct SignedQuads {
  __m256i lo, hi;
};
TS_VECTOR_INLINE Ints set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
TS_VECTOR_INLINE Quads load_quads(const uint8_t* p) {
  const __m256i* at = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
// Signed bytes and their magnitudes, at most 128. With magnitudes as the unsigned bytes of a product, no sum of two products overflows 16
// bits.
struct MagnitudeQuads {
  SignedQuads bytes;
  Quads magnitudes;
};
TS_VECTOR_INLINE auto offset_bytes(Quads a) {
  if constexpr (kAnyBytes) {
    return a;
  } else {
    const __m256i zero = _mm256_set1_epi8(-128), lo = _mm256_xor_si256(a.lo, zero), hi = _mm256_xor_si256(a.hi, zero);
    return MagnitudeQuads{{lo, hi}, {_mm256_abs_epi8(lo), _mm256_abs_epi8(hi)}};
  }
}
TS_VECTOR_INLINE Ints multiply_add(Ints sum, const MagnitudeQuads& by, const int8_t* factors) {
  const __m256i all = _mm256_set1_epi32(quad_of(factors));
  return {add_products(sum.lo, by.magnitudes.lo, _mm256_sign_epi8(all, by.bytes.lo)),
          add_products(sum.hi, by.magnitudes.hi, _mm256_sign_epi8(all, by.bytes.hi))};
}
TS_VECTOR_INLINE SignedQuads signed_bytes(Quads a) { return {a.lo, a.hi}; }
TS_VECTOR_INLINE __m256i nibbles(__m256i a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
TS_VECTOR_INLINE Quads low_nibbles(Quads a) { return {nibbles(a.lo), nibbles(a.hi)}; }
TS_VECTOR_INLINE Quads high_nibbles(Quads a) { return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)}); }
TS_VECTOR_INLINE Ints multiply_add(Ints sum, Quads by, const int8_t* factors) {
  const __m256i all = _mm256_set1_epi32(quad_of(factors));
  return {add_products(sum.lo, by.lo, all), add_products(sum.hi, by.hi, all)};
}
TS_VECTOR_INLINE Ints multiply_add(Ints sum, SignedQuads by, const int8_t* factors) {
  const __m256i all = _mm256_set1_epi32(quad_of(factors));
  return {add_products(sum.lo, all, by.lo), add_products(sum.hi, all, by.hi)};
}
TS_VECTOR_INLINE Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
TS_VECTOR_INLINE Ints times_128(Ints a) { return {_mm256_slli_epi32(a.lo, 7), _mm256_slli_epi32(a.hi, 7)}; }
TS_VECTOR_INLINE Vec to_float(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
TS_VECTOR_INLINE Ints magnitude_bits(Vec a) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_and_si256(_mm256_castps_si256(a.lo), mask), _mm256_and_si256(_mm256_castps_si256(a.hi), mask)};
}
TS_VECTOR_INLINE Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
TS_VECTOR_INLINE int32_t reduce_add(Ints a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
TS_VECTOR_INLINE int32_t reduce_max(Ints a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
// The low halves of 16 numbers, as signed words in order.
TS_VECTOR_INLINE __m256i low_words(Vec a) {
  const __m256i lo = _mm256_srai_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 16), 16);
  const __m256i hi = _mm256_srai_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 16), 16);
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
}
TS_VECTOR_INLINE void store_narrow(int8_t* to, __m256i words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
TS_VECTOR_INLINE void store_bytes(const Vec (&rounded)[4], int8_t* to) {
  for (int i = 0; i < 4; ++i) store_narrow(to + 16 * i, low_words(rounded[i]));
}
TS_VECTOR_INLINE Ints store_digits(const Vec (&rounded)[4], int8_t* high, int8_t* low) {
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i words = low_words(rounded[i]);
    store_narrow(high + 16 * i, _mm256_srai_epi16(words, 7));
    store_narrow(low + 16 * i, _mm256_and_si256(words, _mm256_set1_epi16(127)));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }
  return {sum, _mm256_setzero_si256()};
}

}  // namespace twostroke
