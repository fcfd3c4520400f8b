// Products of bytes in 256-bit registers, by one instruction where the CPU has VNNI for them (AVX-VNNI), else by three.
#pragma once
#include "twostroke/registers.h"

#define TS_BYTES_INLINE __attribute__((always_inline)) inline

namespace twostroke {

#if defined(TS_LEVEL_AVXVNNI)
// total + the products of four unsigned by four signed bytes, in each 32 bits. No sum saturates.
constexpr bool kAnyBytes = true;
TS_BYTES_INLINE __m256i add_products(__m256i total, __m256i unsigned_bytes, __m256i signed_bytes) {
  return _mm256_dpbusd_avx_epi32(total, unsigned_bytes, signed_bytes);
}
#else
// The same. Two neighbouring products must fit 16 bits.
constexpr bool kAnyBytes = false;
TS_BYTES_INLINE __m256i add_products(__m256i total, __m256i unsigned_bytes, __m256i signed_bytes) {
  return _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_bytes, signed_bytes), _mm256_set1_epi16(1)));
}
#endif

}  // namespace twostroke
