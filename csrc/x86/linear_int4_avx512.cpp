// int4 weights of ts_linear for AVX-512 with VNNI: few rows are multiplied by the nibbles themselves.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

template <int kLines, class Where>
TS_INLINE void prefetch(const Where& ahead, const uint8_t* data) {
  TS_UNROLL
  for (int i = 0; i < kLines; ++i) ahead.prefetch(data + 64 * i);
}

// Adds half a step, 32 k, of one panel to its totals.
template <int kRows, class Where>
TS_INLINE void turn(const uint8_t* data, int pair, const Where& ahead, const int8_t* q, const int32_t* corrections,
                    const TileRows& x, __m512i (&totals)[kRows][kVectors]) {
  constexpr int kAcross = kRows == 1 ? kVectors : kRows == 2 ? 2 : 1;
  const uint8_t* octs = data + kMultiplierBytes + pair * 4 * kQuadBytes;
  prefetch<1>(ahead, data + pair * kPanel);
  TS_UNROLL
  for (int first = 0; first < kVectors; first += kAcross) {
    __m512i multipliers[kAcross];
    TS_UNROLL
    for (int sub = 0; sub < 2; ++sub) {
      prefetch<2 * kAcross>(ahead, data + kMultiplierBytes + (pair * kVectors + first) * 256 + sub * kAcross * 128);
      TS_UNROLL
      for (int j = 0; j < kAcross; ++j) {
        const __m512i both = multiplier_pair(data, pair, first + j);
        multipliers[j] = sub == 0 ? _mm512_and_si512(both, _mm512_set1_epi32(15)) : _mm512_srli_epi32(both, 4);
      }
      add_subgroup(octs + sub * 2 * kQuadBytes + 64 * first, multipliers, q + pair * 32 + sub * 16, x.q_stride, corrections + pair * 2 + sub,
                   x.subgroups, first, totals);
    }
  }
}

template <int kRows>
TS_INLINE void clear(__m512i (&totals)[kRows][kVectors]) {
  for (auto& row : totals) {
    for (__m512i& total : row) total = _mm512_setzero_si512();
  }
}

// One row is quickest where only the hardware fetches.
template <int kRows>
TS_INLINE auto fetching() {
  if constexpr (kRows == 1) {
    return Unaided();
  } else {
    return Ahead{kFarOfSome, kNearOfSome};
  }
}

template <int kRows>
void int4_tile(const Panel& panel, const TileRows& x, float* sums) {
  const int32_t* corrections = x.sub_corrections;
  multiply_panel<kRows>(panel, x, sums, [&](const uint8_t* data, int64_t columns, int64_t, const int8_t* q, auto& totals) TS_ALWAYS {
    clear(totals);
    for (const uint8_t* end = data + panel_bytes(TS_W_INT4, columns); data < end; data += kInt4StepBytes, q += kStep, corrections += 4) {
      TS_UNROLL
      for (int pair = 0; pair < 2; ++pair) turn<kRows>(data, pair, fetching<kRows>(), q, corrections, x, totals);
    }
    return data;
  });
}

// Multiplies by panels in turn.
template <int kRows>
void int4_groups(const Group* groups, const TileRows& x, float* sums, int64_t stream_floats) {
  constexpr int kPanels = static_cast<int>(streams(TS_W_INT4));
  __m512i totals[kPanels][kRows][kVectors];
  for (auto& panel : totals) clear(panel);
  const int8_t* q = x.q + groups->first;
  const int32_t* corrections = x.sub_corrections + groups->first / kSubgroup;
  const int64_t bytes = panel_bytes(TS_W_INT4, groups->columns);
  for (int64_t at = 0; at < bytes; at += kInt4StepBytes, q += kStep, corrections += 4) {
    TS_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      for (int s = 0; s < kPanels; ++s) {
        const Ahead ahead = Ahead::of<3 * kInt4StepBytes / 2, kInt4StepBytes>(groups[s].data, bytes, groups[s].after, at);
        turn<kRows>(groups[s].data + at, pair, ahead, q, corrections, x, totals[s]);
      }
    }
  }
  for (int s = 0; s < kPanels; ++s) fold_columns<Columns512>(totals[s], x.scales + groups[s].index * x.pair_stride, groups[s].scales, sums + s * stream_floats);
}

}  // namespace

TileKernel int4_few_rows(int64_t rows) {
  return kernel_of<TileKernel, kStreamRows>(rows, [](auto count) { return int4_tile<count()>; });
}

StreamKernel int4_streams(int64_t rows) {
  return kernel_of<StreamKernel, kStreamRows>(rows, [](auto count) { return int4_groups<count()>; });
}

}  // namespace twostroke
#endif
