// int4 weights of ts_linear for AVX2: the unpacking of a group to bytes.
// Knows: packed panels, 256-bit registers. Must not know: threads, other levels.
#if defined(TS_LEVEL_AVX2)
#include <immintrin.h>

#include "twostroke/linear.h"

namespace twostroke {
namespace {

constexpr int64_t kColumns = 8;             // of one register

TS_INLINE __m256i load(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }
TS_INLINE void store(uint8_t* to, __m256i bytes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes); }

// 16 k of 8 columns. A multiplier in each 16 bits multiplies two elements at once: neither product exceeds 225, a byte.
TS_INLINE void unpack_columns(const uint8_t* octs, __m256i multipliers, uint8_t* bytes) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i both = _mm256_or_si256(multipliers, _mm256_slli_epi32(multipliers, 16));
  // (nibble - 8) * m + 128 = nibble * m - (8 m - 128), all modulo 256
  const __m256i eights = _mm256_slli_epi32(_mm256_or_si256(both, _mm256_slli_epi32(both, 8)), 3);
  const __m256i less = _mm256_sub_epi8(eights, _mm256_set1_epi8(static_cast<char>(128)));
  TS_UNROLL
  for (int oct = 0; oct < 2; ++oct, octs += kQuadBytes, bytes += 2 * kQuadBytes) {
    const __m256i packed = load(octs);
    const __m256i low = _mm256_and_si256(packed, nibble), high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble);
    store(bytes, _mm256_sub_epi8(_mm256_mullo_epi16(low, both), less));
    store(bytes + kQuadBytes, _mm256_sub_epi8(_mm256_mullo_epi16(high, both), less));
  }
}

}  // namespace

void unpack_int4(const uint8_t* packed, int64_t columns, uint8_t* bytes) {
  for (int64_t k = 0; k < columns; k += kStep, packed += kInt4StepBytes) {
    const uint8_t* elements = packed + kMultiplierBytes;
    for (int64_t part = 0; part < kStep / kSubgroup; ++part, elements += 2 * kQuadBytes, bytes += kSubgroup * kPanel) {
      for (int64_t c = 0; c < kPanel; c += kColumns) {
        const __m128i pair = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed + part / 2 * kPanel + c));
        const __m256i wide = _mm256_cvtepu8_epi32(pair);
        const __m256i multipliers = part % 2 == 0 ? _mm256_and_si256(wide, _mm256_set1_epi32(15)) : _mm256_srli_epi32(wide, 4);
        unpack_columns(elements + 4 * c, multipliers, bytes + 4 * c);
      }
    }
  }
}

}  // namespace twostroke
#endif
