// Rows of activations to int8 in matrix tiles, 16 at a time: the same bits as generic/linear_quantize.cpp.
// Knows: the rounding rule, tiles. Must not know: which rows, threads.
#if defined(TS_LEVEL_AMX)
#include "twostroke/vnni.h"

namespace twostroke {
namespace {

TS_INLINE float group_magnitude(const float* x, int64_t columns) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i best[4] = {};
  for (int64_t k = 0; k < columns; k += kStep) {
    TS_UNROLL
    for (int i = 0; i < 4; ++i) best[i] = _mm512_max_epu32(best[i], _mm512_and_si512(_mm512_loadu_si512(x + k + 16 * i), magnitude));
  }
  const __m512i most = _mm512_max_epu32(_mm512_max_epu32(best[0], best[1]), _mm512_max_epu32(best[2], best[3]));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int32_t>(_mm512_reduce_max_epu32(most)))));
}

// 64 columns of all rows before the next 64: stores follow each other in memory.
TS_INLINE void tile_group(const float* x, int64_t x_stride, int64_t rows, int64_t columns, const QuantizedRow& to) {
  __m512 inverses[kMatrixTileRows];
  __mmask16 on[kMatrixTileRows];
  __m512i totals[kMatrixTileRows];
  for (int64_t r = 0; r < rows; ++r) {
    const float amax = group_magnitude(x + r * x_stride, columns);
    const bool usable = amax >= kLeastMagnitude && amax <= kMostMagnitude;
    inverses[r] = _mm512_set1_ps(usable ? 127.0f / amax : 0.0f);
    on[r] = usable ? 0xffff : 0;
    totals[r] = _mm512_setzero_si512();
    to.scales[r] = amax / 127.0f;
  }
  for (int64_t k = 0; k < columns; k += kStep) {
    for (int64_t r = 0; r < rows; ++r) {
      const __m512i bytes = quantize_64(x + r * x_stride + k, inverses[r], on[r]);
      _mm512_storeu_si512(to.q + k / kStep * kMatrixTileBytes + r * kStep, bytes);
      totals[r] = _mm512_dpbusd_epi32(totals[r], _mm512_set1_epi8(1), bytes);
    }
  }
  for (int64_t r = 0; r < rows; ++r) to.corrections[r] = -128 * _mm512_reduce_add_epi32(totals[r]);
}

}  // namespace

void quantize_tiles(const float* x, int64_t x_stride, int64_t rows, int64_t columns, QuantizedRow to) {
  if (columns % kStep == 0) return tile_group(x, x_stride, rows, columns, to);
  for (int64_t r = 0; r < rows; ++r, to.q += kStep, ++to.scales, ++to.corrections) {
    quantize_row(x + r * x_stride, columns, round_up(columns, kStep), to);
  }
}

}  // namespace twostroke
#endif
