// VPDPBUSD of AVX-VNNI in 256-bit registers (Intel's manual, volume 2) by AVX2, for tests. The header is included before a source of the
// level `avxvnni`, so that a CPU without the instruction runs it, with the same bits.
#pragma once
#include <immintrin.h>

// Adds the products of four unsigned and four signed bytes to sum, in each 32 bits. Nothing saturates, because pairs are added in 32 bits.
__attribute__((always_inline)) inline __m256i emulated_dpbusd(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(unsigned_bytes, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(signed_bytes, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(unsigned_bytes, 8), _mm256_srai_epi16(signed_bytes, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
