// Code that the AVX2 files of ts_linear share: loads, and registers of eight columns.
#pragma once
#include <string.h>

#include "twostroke/products/columns.h"
#include "twostroke/x86/bytes.h"
#include "twostroke/x86/bytes_avx2.h"

namespace twostroke {

TS_INLINE __m256i load(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }

TS_INLINE __m256i broadcast_quad(const void* four_bytes) {
  int32_t quad;
  memcpy(&quad, four_bytes, 4);
  return _mm256_set1_epi32(quad);
}

template <>
struct Bytes<__m256i> {
  static TS_INLINE __m256i all(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
  static TS_INLINE __m256i both(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
  static TS_INLINE __m256i either(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
  static TS_INLINE __m256i up(__m256i a, int places) { return _mm256_slli_epi16(a, places); }
  static TS_INLINE __m256i down(__m256i a, int places) { return _mm256_srli_epi16(a, places); }
  static TS_INLINE __m256i look_up(__m128i table, __m256i places) { return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), places); }
  static TS_INLINE __m256i load(const uint8_t* data) { return twostroke::load(data); }
  static TS_INLINE __m256i quad(const int8_t* four) { return broadcast_quad(four); }
  static TS_INLINE __m256i all_words(int32_t word) { return _mm256_set1_epi32(word); }
  // Without VNNI the sums are in two halves of 16 bits. Each half adds 8 products of at most 15 * 127 and begins at no more than 4 * 16 *
  // 127.
  static TS_INLINE __m256i add_quad(__m256i sums, __m256i elements, __m256i quad) {
    return kAnyBytes ? twostroke::add_products(sums, elements, quad) : _mm256_add_epi16(sums, _mm256_maddubs_epi16(elements, quad));
  }
  static TS_INLINE __m256i add_multiplied(__m256i total, __m256i sums, __m256i multipliers) {
    return _mm256_add_epi32(total, _mm256_madd_epi16(sums, multipliers));
  }
};

// Registers of eight columns: see columns.h.
struct Columns256 {
  static constexpr int kCount = 8;
  typedef __m256 Floats;
  typedef __m256i Integers;

  // The registers across a strip of floats or bytes. One row crosses the panel in one strip, so that it reads memory as a stream.
  static constexpr int strip_vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

  static TS_INLINE Floats load(const float* at) { return _mm256_load_ps(at); }
  static TS_INLINE void store(float* to, Floats floats) { _mm256_store_ps(to, floats); }
  static TS_INLINE Floats all(float x) { return _mm256_set1_ps(x); }
  static TS_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static TS_INLINE Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
  static TS_INLINE Floats to_floats(Integers integers) { return _mm256_cvtepi32_ps(integers); }
  static TS_INLINE Floats from_f32(const uint8_t* data) { return _mm256_castsi256_ps(twostroke::load(data)); }
  static TS_INLINE Floats from_bf16(const uint8_t* data) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static TS_INLINE Floats from_f16(const uint8_t* data) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data)));
  }
  template <bool kSigned>
  static TS_INLINE Floats from_bytes(const uint8_t* data) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data));
    return _mm256_cvtepi32_ps(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
  }
  static TS_INLINE Floats low_halves(const uint8_t* data) { return _mm256_castsi256_ps(_mm256_slli_epi32(twostroke::load(data), 16)); }
  static TS_INLINE Floats high_halves(const uint8_t* data) {
    const __m256i high_half = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(twostroke::load(data), high_half));
  }

  // Adds the products of the first kWidth of the k that lie together, one k after the other.
  template <class Weights, int kWidth, int kRows, int kVectors>
  static TS_INLINE void add_products(Floats (&totals)[kRows][kVectors], const uint8_t* data, const float* x, int64_t stride) {
    TS_UNROLL
    for (int64_t i = 0; i < kWidth; ++i) {
      Floats values[kRows];
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) values[r] = all(x[r * stride + i]);
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        const Floats weights = Weights::at(data + 32 * j, i);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) totals[r][j] = multiply_add(values[r], weights, totals[r][j]);
      }
    }
  }
};

}  // namespace twostroke
