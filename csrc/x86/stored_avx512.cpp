// Products with a group of stored codes for AVX-512 with VNNI.
// Knows: unpacked groups, quantized rows, 512-bit registers. Must not know: how codes were packed, threads.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/stored.h"
#include "twostroke/vnni.h"

namespace twostroke {
namespace {

template <int kRows>
void tile(const StoredGroup& weights, const Group& group, const TileRows& x, float* sums) {
  alignas(64) float waiting[kRows][kPanel] = {};
  const int64_t parts = weights.sub / kSubgroup;
  const int8_t* q = x.q + group.first;
  const uint8_t* bytes = weights.bytes;
  const int32_t* corrections = x.sub_corrections + group.first / kSubgroup;
  for (int64_t s = 0; s < group.columns / weights.sub; ++s, corrections += parts) {
    __m512i integers[kRows][kVectors];
    int32_t eights[kRows];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      eights[r] = eights_of(corrections + r * x.subgroups, parts);
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) integers[r][j] = _mm512_set1_epi32(16 * eights[r]);
    }
    for (int64_t k = 0; k < weights.sub; k += 4, q += 4, bytes += kQuadBytes) {
      __m512i quads[kVectors];
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) quads[j] = load(bytes + 64 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512i four = broadcast_quad(q + r * x.q_stride);
        TS_UNROLL
        for (int j = 0; j < kVectors; ++j) integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], quads[j], four);
      }
    }
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const __m512 step = _mm512_loadu_ps(weights.steps + s * kPanel + 16 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        __m512 total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r][j]), step, _mm512_load_ps(waiting[r] + 16 * j));
        if (weights.minima != nullptr) {
          const __m512 minimum = _mm512_loadu_ps(weights.minima + s * kPanel + 16 * j);
          total = _mm512_fnmadd_ps(minimum, _mm512_set1_ps(static_cast<float>(eights[r] / -8)), total);
        }
        _mm512_store_ps(waiting[r] + 16 * j, total);
      }
    }
  }
  add_scaled(waiting, x.scales + group.index * x.pair_stride, sums);
}

}  // namespace

void multiply_stored(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  typedef void (*Tile)(const StoredGroup&, const Group&, const TileRows&, float*);
  constexpr Tile tiles[kTileRows] = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};
  tiles[rows - 1](weights, group, x, sums);
}

}  // namespace twostroke
#endif
