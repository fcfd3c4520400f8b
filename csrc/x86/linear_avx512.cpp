// The register tiles of ts_linear for AVX-512 with VNNI: floats, with up to 6 rows by 64 columns in 24 accumulators, and few rows of bytes.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/products/stored.h"
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

// Fetches weights, which the rows of one tile read once, from memory.
TS_INLINE void prefetch(const uint8_t* data) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) prefetch_line(data + 64 * j);
}

constexpr int64_t kFarOfSeveral = 1024, kNearOfSeveral = 512;

// Multiplies kQuads quads of k of one panel. kQuads is a constant, because scalar work between turns would take the ports of products.
template <int kRows, int kQuads>
TS_INLINE void turn(const uint8_t* data, const Ahead& ahead, const int8_t* q, int64_t stride, __m512i (&integers)[kRows][kVectors]) {
  TS_UNROLL
  for (int i = 0; i < kQuads; ++i) {
    __m512i weights[kVectors];
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = load(data + i * kQuadBytes + 64 * j);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) ahead.prefetch(data + i * kQuadBytes + 64 * j);
    multiply(weights, q + 4 * i, stride, integers);
  }
}

template <int kRows>
void int8_tile(const Panel& panel, const TileRows& x, float* sums) {
  multiply_panel<kRows>(panel, x, sums, [&](const uint8_t* data, int64_t columns, int64_t group, const int8_t* q, auto& integers) TS_ALWAYS {
    begin(x.corrections + group * x.pair_stride, integers);
    for (const uint8_t* end = data + columns * kPanel; data < end; data += 4 * kQuadBytes, q += 4 * 4) {
      turn<kRows, 4>(data, {kFarOfOne, kNearOfOne}, q, x.q_stride, integers);
    }
    return data;
  });
}

// Multiplies by panels in turn. Their integers stay in the first-level cache.
template <int kRows>
void int8_groups(const Group* groups, const TileRows& x, float* sums, int64_t stream_floats) {
  constexpr int kPanels = static_cast<int>(streams(TS_W_INT8));
  __m512i waiting[kPanels][kRows][kVectors];
  for (auto& integers : waiting) begin(x.corrections + groups->index * x.pair_stride, integers);
  const int8_t* q = x.q + groups->first;
  const int64_t bytes = groups->columns * kPanel;
  for (int64_t at = 0; at < bytes; at += 2 * kQuadBytes, q += 4 * 2) {
    for (int s = 0; s < kPanels; ++s) {
      __m512i integers[kRows][kVectors];
      memcpy(integers, waiting[s], sizeof(integers));
      turn<kRows, 2>(groups[s].data + at, Ahead::of<kFarOfSeveral, kNearOfSeveral>(groups[s].data, bytes, groups[s].after, at), q, x.q_stride, integers);
      memcpy(waiting[s], integers, sizeof(integers));
    }
  }
  for (int s = 0; s < kPanels; ++s) fold_columns<Columns512>(waiting[s], x.scales + groups[s].index * x.pair_stride, groups[s].scales, sums + s * stream_floats);
}

template <int kRows>
void f32_tile(const Panel& panel, const TileRows& x, float* sums) {
  __m512 totals[kRows][kVectors];
  for (auto& row : totals) {
    for (auto& total : row) total = _mm512_setzero_ps();
  }
  const uint8_t* data = panel.data;
  for (int64_t k = 0; k < panel.columns; ++k, data += kQuadBytes) {
    __m512 weights[kVectors];
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_loadu_ps(data + 64 * j);
    prefetch(data);
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
  }
  store_rows(totals, sums);
}

// A pair of bf16 is a 32-bit word: the even k in its low half, the odd k in its high half.
template <int kRows>
void bf16_tile(const Panel& panel, const TileRows& x, float* sums) {
  __m512 totals[kRows][kVectors];
  for (auto& row : totals) {
    for (auto& total : row) total = _mm512_setzero_ps();
  }
  const uint8_t* data = panel.data;
  const __m512i high_half = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  int64_t k = 0;
  for (; k + 2 <= panel.columns; k += 2, data += kQuadBytes) {
    __m512 weights[kVectors];
    prefetch(data);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_slli_epi32(load(data + 64 * j), 16));
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_and_si512(load(data + 64 * j), high_half));
    multiply_add<kRows>(totals, weights, x.x + k + 1, x.x_stride);
  }
  if (k < panel.columns) {  // this is the odd last column; its partner is padding, and x ends here
    __m512 weights[kVectors];
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_slli_epi32(load(data + 64 * j), 16));
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
  }
  store_rows(totals, sums);
}

constexpr TileKernel kF32[kTileRows] = {f32_tile<1>, f32_tile<2>, f32_tile<3>, f32_tile<4>, f32_tile<5>, f32_tile<6>};
constexpr TileKernel kBf16[kTileRows] = {bf16_tile<1>, bf16_tile<2>, bf16_tile<3>, bf16_tile<4>, bf16_tile<5>, bf16_tile<6>};

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) { return kind == TS_W_F32 ? kF32[rows - 1] : kBf16[rows - 1]; }

TileKernel few_rows_kernel(int32_t kind, int64_t rows, bool in_turn) {
  if (is_stored_kind(kind)) return stored_few_rows(kind, rows, in_turn);
  if (kind == TS_W_INT4) return int4_few_rows(rows);
  return kernel_of<TileKernel, kStreamRows>(rows, [](auto count) { return int8_tile<count()>; });
}

StreamKernel stream_kernel(int32_t kind, int64_t rows) {
  if (kind == TS_W_INT4) return int4_streams(rows);
  return kernel_of<StreamKernel, kStreamRows>(rows, [](auto count) { return int8_groups<count()>; });
}

}  // namespace twostroke
#endif
