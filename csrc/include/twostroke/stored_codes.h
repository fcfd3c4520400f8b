// Stored codes in 512-bit registers: multipliers, minima and codes of one group.
// Knows: the layouts, rows of a tile, 512-bit registers. Must not know: threads.
#pragma once
#include "twostroke/stored.h"
#include "twostroke/vnni.h"

namespace twostroke {

// What the codes of one group are multiplied by and what is taken off: (steps, 64) each. Read as a whole before the codes, so that memory
// is read front to back.
template <int32_t kKind>
struct Head {
  static constexpr StoredShape kShape = stored_shape(kKind);
  static constexpr int64_t kScaleBytes = kShape.floats ? 4 : 2, kMostSteps = kStoredGroup / kSubgroup;
  // Codes are multiplied as unsigned bytes: these many more than meant.
  static constexpr int32_t kMore = kShape.table ? 12 : static_cast<int32_t>(kShape.offset);

  alignas(64) float multipliers[kMostSteps * kPanel], minima[kShape.minimum ? kMostSteps * kPanel : 1];

  static TS_INLINE __m512 scale(const uint8_t* from, int64_t index) {
    if constexpr (kShape.floats) return _mm512_loadu_ps(from + 4 * index);
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * index)));
  }

  template <bool kSigned>
  static TS_INLINE __m512 whole(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
  }

  // (steps, 64) numbers at `from`; of super kinds whole ones, times the panel's scales.
  template <bool kSigned, class Fetch>
  static TS_INLINE const uint8_t* widen(const uint8_t* from, const uint8_t* scales, int64_t steps, const Fetch& ahead, float* to) {
    constexpr int64_t kBytes = kPanel * (kShape.super ? 1 : kScaleBytes);
    for (int64_t s = 0; s < steps; ++s, from += kBytes) {
      for (int64_t line = 0; line < kBytes; line += 64) ahead(from + line);
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        const __m512 found = kShape.super ? _mm512_mul_ps(whole<kSigned>(from + 16 * j), scale(scales, 16 * j)) : scale(from, 16 * j);
        _mm512_store_ps(to + s * kPanel + 16 * j, found);
      }
    }
    return from;
  }

  // ahead: called with each line. Returns where the codes begin.
  template <class Fetch>
  TS_INLINE const uint8_t* read(const uint8_t* group, int64_t steps, const Fetch& ahead) {
    const uint8_t* at = group;
    if constexpr (kShape.super) {
      at += (kShape.minimum ? 2 : 1) * kPanel * kScaleBytes;
      for (const uint8_t* line = group; line < at; line += 64) ahead(line);
    }
    at = widen<true>(at, group, steps, ahead, multipliers);
    if constexpr (kShape.minimum) at = widen<false>(at, group + kPanel * kScaleBytes, steps, ahead, minima);
    return at;
  }
};

// Bits of each byte moved up by `places`, or down; a mask takes away what comes from the byte beside it.
TS_INLINE __m512i moved(__m512i bytes, int places) {
  if (places == 0) return bytes;
  return places > 0 ? _mm512_slli_epi16(bytes, static_cast<unsigned>(places)) : _mm512_srli_epi16(bytes, static_cast<unsigned>(-places));
}

// 64 bytes of two codes of 4 bits to 64 of one each. kTable: codes of E2M1 become twice their values, 12 more.
template <bool kTable>
TS_INLINE void split_nibbles(__m512i both, __m512i& low, __m512i& high) {
  const __m512i mask = _mm512_set1_epi8(15);
  low = _mm512_and_si512(both, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  if constexpr (kTable) {
    const __m512i doubled = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    low = _mm512_shuffle_epi8(doubled, low);
    high = _mm512_shuffle_epi8(doubled, high);
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

// The rows behind the first `rows` of x.
TS_INLINE TileRows rows_after(TileRows x, int64_t rows) {
  x.q += rows * x.q_stride;
  x.scales += rows;
  x.sub_corrections += rows * x.subgroups;
  return x;
}

}  // namespace twostroke
