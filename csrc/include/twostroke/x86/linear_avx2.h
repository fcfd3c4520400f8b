// How the AVX2 files of ts_linear load: 32 bytes, four bytes to all lanes, eight bf16 numbers as floats.
#pragma once
#include "twostroke/x86/registers.h"
#include <string.h>

#include "twostroke/x86/bytes_avx2.h"
#include "twostroke/linear.h"

namespace twostroke {

TS_INLINE __m256i load(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }

TS_INLINE __m256i broadcast_quad(const void* four_bytes) {
  int32_t quad;
  memcpy(&quad, four_bytes, 4);
  return _mm256_set1_epi32(quad);
}

TS_INLINE __m256 load_bf16(const uint8_t* data) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

}  // namespace twostroke
