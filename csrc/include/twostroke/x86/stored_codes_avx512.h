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

// Bits of each byte moved up by `places`, or down; a mask takes away what comes from the byte next to it.
TS_INLINE __m512i moved(__m512i bytes, int places) {
  if (places == 0) return bytes;
  return places > 0 ? _mm512_slli_epi16(bytes, static_cast<unsigned>(places)) : _mm512_srli_epi16(bytes, static_cast<unsigned>(-places));
}

// 64 bytes of two codes of 4 bits to 64 of one each. Codes of E2M1 become twice their values, 12 more, and those of IQ4 theirs, 128 more.
template <CodeTable kTable>
TS_INLINE void split_nibbles(__m512i both, __m512i& low, __m512i& high) {
  const __m512i mask = _mm512_set1_epi8(15);
  low = _mm512_and_si512(both, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  if constexpr (kTable != kNoTable) {
    const __m128i doubled = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    const __m128i meant = kTable == kE2M1 ? doubled : _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIQ4Codes));
    low = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(meant), low);
    high = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(meant), high);
  }
}

// The same of pair number `pair` of a block, with the codes' highest bits, which lie in `bits`.
template <int kHigh>
TS_INLINE void split_pair(__m512i both, __m512i bits, int pair, __m512i& low, __m512i& high) {
  const __m512i mask = _mm512_set1_epi8(15), place = _mm512_set1_epi8(((1 << kHigh) - 1) << 4);
  const int first = 2 * pair * kHigh, second = first + kHigh;  // where the bits of both quads begin; they belong at bit 4
  low = _mm512_or_si512(_mm512_and_si512(both, mask), _mm512_and_si512(moved(bits, 4 - first), place));
  high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(both, 4), mask), _mm512_and_si512(moved(bits, 4 - second), place));
}

}  // namespace twostroke
