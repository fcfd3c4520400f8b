// Stored codes in 512-bit registers.
#pragma once
#include "twostroke/stored_head.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {

// 16 scales, minima or multipliers as floats.
struct Floats512 {
  static constexpr int64_t kCount = 16;
  typedef __m512 Floats;

  static TS_INLINE Floats from_f32(const uint8_t* at) { return _mm512_loadu_ps(at); }
  static TS_INLINE Floats from_f16(const uint8_t* at) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))); }
  template <bool kSigned>
  static TS_INLINE Floats from_bytes(const uint8_t* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm512_cvtepi32_ps(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
  }
  static TS_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static TS_INLINE void store(float* to, Floats floats) { _mm512_store_ps(to, floats); }
};

template <int32_t kKind>
using Head = StoredHead<kKind, Floats512>;

}  // namespace twostroke
