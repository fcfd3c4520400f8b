// Products with a group of stored codes for AVX2 and FMA: eight columns of all rows at a time.
// Knows: unpacked groups, quantized rows, 256-bit registers. Must not know: how codes were packed, threads.
#if defined(TS_LEVEL_AVX2)
#include <immintrin.h>

#include "twostroke/stored.h"

namespace twostroke {
namespace {

constexpr int kLanes = 8;

TS_INLINE __m256i load(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }

// Sums of four products each; |code| * |q| <= 128 * 127, of which two do not saturate 16 bits.
TS_INLINE __m256i dot(__m256i codes, __m256i magnitudes, const int8_t* q) {
  int32_t four;
  memcpy(&four, q, 4);
  const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(_mm256_set1_epi32(four), codes));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

template <int kRows>
TS_INLINE void strip(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t c, float* sums) {
  __m256 totals[kRows];
  for (__m256& total : totals) total = _mm256_setzero_ps();
  const int64_t parts = weights.sub / kSubgroup;
  const int32_t* corrections = x.sub_corrections + group.first / kSubgroup;
  for (int64_t s = 0; s < group.columns / weights.sub; ++s, corrections += parts) {
    __m256i integers[kRows];
    for (__m256i& each : integers) each = _mm256_setzero_si256();
    for (int64_t k = s * weights.sub; k < (s + 1) * weights.sub; k += 4) {
      const __m256i codes = _mm256_xor_si256(load(weights.bytes + k * kPanel + 4 * c), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i magnitudes = _mm256_abs_epi8(codes);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        integers[r] = _mm256_add_epi32(integers[r], dot(codes, magnitudes, x.q + r * x.q_stride + group.first + k));
      }
    }
    const __m256 step = _mm256_loadu_ps(weights.steps + s * kPanel + c);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers[r]), step, totals[r]);
      if (weights.minima == nullptr) continue;
      const int32_t eights = eights_of(corrections + r * x.subgroups, parts);
      const __m256 minimum = _mm256_loadu_ps(weights.minima + s * kPanel + c);
      totals[r] = _mm256_fnmadd_ps(minimum, _mm256_set1_ps(static_cast<float>(eights / -8)), totals[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* at = sums + r * kPanel + c;
    const __m256 scale = _mm256_set1_ps(x.scales[group.index * x.pair_stride + r]);
    _mm256_storeu_ps(at, _mm256_fmadd_ps(totals[r], scale, _mm256_loadu_ps(at)));
  }
}

template <int kRows>
void tile(const StoredGroup& weights, const Group& group, const TileRows& x, float* sums) {
  for (int64_t c = 0; c < kPanel; c += kLanes) strip<kRows>(weights, group, x, c, sums);
}

}  // namespace

void multiply_stored(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  typedef void (*Tile)(const StoredGroup&, const Group&, const TileRows&, float*);
  constexpr Tile tiles[kTileRows] = {tile<1>, tile<2>, tile<3>, tile<4>};
  tiles[rows - 1](weights, group, x, sums);
}

}  // namespace twostroke
#endif
