// Stored codes in 512-bit registers.
#pragma once
#include "twostroke/products/stored_head.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {

template <int32_t kKind>
using Head = StoredHead<kKind, Columns512>;

// Returns the third bits of a quad of 16 rows, at bit 2 of each code. from: two bytes for each row; bit 4 i + q belongs to column i of quad q.
TS_INLINE __m512i thirds(const uint8_t* from, int quad) {
  const __m512i each = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
  const __m512i wanted = _mm512_set1_epi16(static_cast<int16_t>(0x1001 << quad));
  return _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(_mm512_shuffle_epi8(each, spread), wanted), 4);
}

}  // namespace twostroke
