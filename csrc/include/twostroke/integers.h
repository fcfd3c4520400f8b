// Sixteen int32 lanes, the bytes that are summed into them four at a time, and numbers as two digits: what attention over integer K
// and V needs next to simd.h. Integer sums are exact, so they are the same at every level and in any order.
//
// A whole number is kept as one byte in [-127, 127] or as two digits, 128 * high + low, high in [-128, 127] and low in [0, 127]: signed
// bytes, which unsigned bytes of K or V are multiplied with, and unsigned ones where the number is not negative, for signed bytes of V.
// store_bytes and store_digits keep 64 rounded numbers; the latter returns lanes that add up to their sum. What came from a NaN is
// any number.
#pragma once
#include "twostroke/simd.h"
#if defined(TS_LEVEL_AVX2)
#include "twostroke/bytes_avx2.h"
#endif

namespace twostroke {

TS_VECTOR_INLINE int32_t quad_of(const int8_t* factors) {
  int32_t quad;
  memcpy(&quad, factors, 4);
  return quad;
}

}  // namespace twostroke

#if defined(TS_LEVEL_NEON)
#include "twostroke/neon/integers.h"
#endif

namespace twostroke {

constexpr int kDigits = 2;
constexpr float kLargestByte = 127.0f, kLargestWhole = 16383.0f;
constexpr float kSmallestScaled = 1.9259299e-34f;  // 2^-112, whose inverse is still finite
constexpr float kRounder = 12582912.0f;            // 1.5 * 2^23: adding it rounds to whole numbers, ties to even

// What offset_bytes leaves of a zero.
#if defined(TS_LEVEL_AVX2) && !defined(TS_LEVEL_AVXVNNI)
#define TS_WORD_PRODUCTS  // products of words take fewer instructions than those of bytes: attention/words.h
constexpr int32_t kByteZero = 0;
#elif !defined(TS_LEVEL_NEON)
constexpr int32_t kByteZero = 128;
#endif

#if defined(TS_LEVEL_AVX512)

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
// The low halves of 32 words in order.
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

#elif defined(TS_LEVEL_AVX2)

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
#if defined(TS_LEVEL_AVXVNNI)
TS_VECTOR_INLINE Quads offset_bytes(Quads a) { return a; }
#else
// Signed bytes and their magnitudes, at most 128: with these as the unsigned bytes of a product, no sum of two products overflows 16 bits.
struct MagnitudeQuads {
  SignedQuads bytes;
  Quads magnitudes;
};
TS_VECTOR_INLINE MagnitudeQuads offset_bytes(Quads a) {
  const __m256i zero = _mm256_set1_epi8(-128), lo = _mm256_xor_si256(a.lo, zero), hi = _mm256_xor_si256(a.hi, zero);
  return {{lo, hi}, {_mm256_abs_epi8(lo), _mm256_abs_epi8(hi)}};
}
TS_VECTOR_INLINE Ints multiply_add(Ints sum, const MagnitudeQuads& by, const int8_t* factors) {
  const __m256i all = _mm256_set1_epi32(quad_of(factors));
  return {add_products(sum.lo, by.magnitudes.lo, _mm256_sign_epi8(all, by.bytes.lo)),
          add_products(sum.hi, by.magnitudes.hi, _mm256_sign_epi8(all, by.bytes.hi))};
}
#endif
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
// The low halves of 16 words as signed words, in order.
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

#elif !defined(TS_LEVEL_NEON)

struct Ints {
  int32_t x[kLanes];
};
struct Quads {
  uint8_t x[4 * kLanes];
};
struct WideQuads {
  int16_t x[4 * kLanes];
};
#define TS_EACH_INT(expression)                                               \
  Ints r;                                                                     \
  for (int i = 0; i < kLanes; ++i) r.x[i] = static_cast<int32_t>(expression); \
  return r
#define TS_EACH_BYTE(expression)                                                  \
  WideQuads r;                                                                    \
  for (int i = 0; i < 4 * kLanes; ++i) r.x[i] = static_cast<int16_t>(expression); \
  return r
TS_VECTOR_INLINE Ints set1(int32_t x) { TS_EACH_INT(x); }
TS_VECTOR_INLINE Quads load_quads(const uint8_t* p) {
  Quads r;
  memcpy(r.x, p, sizeof r.x);
  return r;
}
TS_VECTOR_INLINE WideQuads offset_bytes(Quads a) { TS_EACH_BYTE(a.x[i]); }
TS_VECTOR_INLINE WideQuads signed_bytes(Quads a) { TS_EACH_BYTE(static_cast<int8_t>(a.x[i])); }
TS_VECTOR_INLINE WideQuads low_nibbles(Quads a) { TS_EACH_BYTE(a.x[i] & 15); }
TS_VECTOR_INLINE WideQuads high_nibbles(Quads a) { TS_EACH_BYTE(a.x[i] >> 4); }
TS_VECTOR_INLINE Ints multiply_add(Ints sum, const WideQuads& by, const int8_t* factors) {
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < 4; ++j) sum.x[i] += by.x[4 * i + j] * factors[j];
  return sum;
}
TS_VECTOR_INLINE Ints operator+(Ints a, Ints b) { TS_EACH_INT(a.x[i] + b.x[i]); }
TS_VECTOR_INLINE Ints times_128(Ints a) { TS_EACH_INT(a.x[i] * 128); }
TS_VECTOR_INLINE Vec to_float(Ints a) { TS_EACH_LANE(static_cast<float>(a.x[i])); }
TS_VECTOR_INLINE Ints magnitude_bits(Vec a) {
  Ints r;
  memcpy(r.x, a.x, sizeof r.x);
  for (int32_t& x : r.x) x &= 0x7fffffff;
  return r;
}
TS_VECTOR_INLINE Ints max(Ints a, Ints b) { TS_EACH_INT(a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE int32_t reduce_add(Ints a) {
  int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += a.x[i];
  return total;
}
TS_VECTOR_INLINE int32_t reduce_max(Ints a) {
  int32_t largest = a.x[0];
  for (int i = 1; i < kLanes; ++i) largest = largest > a.x[i] ? largest : a.x[i];
  return largest;
}
TS_VECTOR_INLINE int16_t low_word(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return static_cast<int16_t>(bits);
}
TS_VECTOR_INLINE void store_bytes(const Vec (&rounded)[4], int8_t* to) {
  for (int i = 0; i < 4 * kLanes; ++i) to[i] = static_cast<int8_t>(low_word(rounded[i / kLanes].x[i % kLanes]));
}
TS_VECTOR_INLINE Ints store_digits(const Vec (&rounded)[4], int8_t* high, int8_t* low) {
  Ints sum = set1(0);
  for (int i = 0; i < 4 * kLanes; ++i) {
    const int16_t whole = low_word(rounded[i / kLanes].x[i % kLanes]);
    high[i] = static_cast<int8_t>(whole >> 7);
    low[i] = static_cast<int8_t>(whole & 127);
    sum.x[i % kLanes] += whole;
  }
  return sum;
}

#endif

// Numbers that share a scale: number = whole * scale, for up to 16 rows. largest: of each row's magnitudes, which becomes largest_whole; NaN
// or infinity makes every number of the row NaN. A row whose largest is below kSmallestScaled has that one's scale.
struct Scaling {
  Vec scale, inverse;

  Scaling(Vec largest, float largest_whole) {
    const Vec kept = max(set1(kSmallestScaled), largest);  // the second where one is NaN
    scale = kept * set1(1.0f / largest_whole) + (kept - kept);
    inverse = set1(largest_whole) / kept;
  }
};

// What store_bytes and store_digits take: the whole number in the low 16 bits.
TS_VECTOR_INLINE Vec rounded(Vec number, Vec inverse) { return fma(number, inverse, set1(kRounder)); }

}  // namespace twostroke
