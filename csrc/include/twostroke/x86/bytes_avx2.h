// Products of bytes in 256-bit registers. They take one instruction where the CPU has VNNI for them (AVX-VNNI), else three.
#pragma once
#include "twostroke/level.h"
#include "twostroke/x86/registers.h"

#define TS_BYTES_INLINE __attribute__((always_inline)) inline

namespace twostroke {

constexpr bool kAnyBytes = kLevel.byte_products;

// total plus the products of four unsigned and four signed bytes, in each 32 bits. With kAnyBytes no sum saturates; else two neighbouring
// products must fit 16 bits.
TS_BYTES_INLINE __m256i add_products(__m256i total, __m256i unsigned_bytes, __m256i signed_bytes) {
  if constexpr (kAnyBytes) return _mm256_dpbusd_avx_epi32(total, unsigned_bytes, signed_bytes);
  return _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_bytes, signed_bytes), _mm256_set1_epi16(1)));
}

}  // namespace twostroke
