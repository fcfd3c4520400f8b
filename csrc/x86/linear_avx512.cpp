// The register tile of ts_linear for AVX-512 with VNNI: up to 6 rows by 64 columns in 24 accumulators.
// Knows: packed panels, 512-bit registers. Must not know: threads, other levels.
#if defined(TS_LEVEL_AVX512)
#include <immintrin.h>

#include "twostroke/linear.h"

namespace twostroke {
namespace {

constexpr int kVectors = 4;                 // registers across a panel
constexpr int64_t kQuadBytes = 4 * kPanel;  // packed bytes of one step of an integer kernel
constexpr int64_t kAheadBytes = 4096;       // the hardware prefetchers stop at a page; this looks past its end

// Few rows stream the weights from memory; many find them in the second-level cache.
template <int kRows>
TS_INLINE void prefetch(const uint8_t* data) {
  if (kRows > 2) return;
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    _mm_prefetch(reinterpret_cast<const char*>(data + kAheadBytes + 64 * j), _MM_HINT_T0);
  }
}

TS_INLINE __m512i load(const uint8_t* data) { return _mm512_loadu_si512(data); }

TS_INLINE __m512i broadcast_quad(const int8_t* q) {
  int32_t quad;
  memcpy(&quad, q, 4);
  return _mm512_set1_epi32(quad);
}

TS_INLINE __m512 load_bf16(const uint8_t* data) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// sums = fma(float(integers), x_scale * w_scale, sums), a group at a time.
template <int kRows>
TS_INLINE void fold(const __m512i (&integers)[kRows][kVectors], const TileRows& x, int64_t g, const uint8_t* scales,
                    float* sums) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const __m512 w_scale = load_bf16(scales + 32 * j);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* at = sums + r * kPanel + 16 * j;
      const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scales[r * x.groups + g]), w_scale);
      _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r][j]), scale, _mm512_load_ps(at)));
    }
  }
}

template <int kRows>
TS_INLINE void start(__m512i (&integers)[kRows][kVectors], const TileRows& x, int64_t g) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512i correction = _mm512_set1_epi32(x.corrections[r * x.groups + g]);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) integers[r][j] = correction;
  }
}

template <int kRows>
void int8_tile(const Panel& panel, const TileRows& x, float* sums) {
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  const uint8_t* data = panel.data;
  const int8_t* q = x.q;
  for (int64_t g = 0; g < x.groups; ++g) {
    __m512i integers[kRows][kVectors];
    start<kRows>(integers, x, g);
    for (int64_t k = 0; k < panel.group; k += 4, q += 4, data += kQuadBytes) {
      __m512i weights[kVectors];
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) weights[j] = load(data + 64 * j);
      prefetch<kRows>(data);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512i quad = broadcast_quad(q + r * x.q_stride);
        TS_UNROLL
        for (int j = 0; j < kVectors; ++j) integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], weights[j], quad);
      }
    }
    fold<kRows>(integers, x, g, panel.scales + g * kPanel * 2, sums);
  }
}

// Two registers of columns at a time: their low and high nibbles, 24 accumulators, a mask and an activation fit.
template <int kRows>
void int4_tile(const Panel& panel, const TileRows& x, float* sums) {
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  const uint8_t* data = panel.data;
  const int8_t* q = x.q;
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int64_t g = 0; g < x.groups; ++g) {
    __m512i integers[kRows][kVectors];
    start<kRows>(integers, x, g);
    for (int64_t k = 0; k < panel.group; k += 8, q += 8, data += kQuadBytes) {
      prefetch<kRows>(data);
      TS_UNROLL
      for (int j = 0; j < kVectors; j += 2) {
        // Makes the compiler load the activations again: kept from the first pair, they would push accumulators out.
        __asm__("" : "+r"(q));
        const __m512i packed0 = load(data + 64 * j), packed1 = load(data + 64 * j + 64);
        const __m512i low0 = _mm512_and_si512(packed0, nibble), low1 = _mm512_and_si512(packed1, nibble);
        const __m512i high0 = _mm512_and_si512(_mm512_srli_epi16(packed0, 4), nibble);
        const __m512i high1 = _mm512_and_si512(_mm512_srli_epi16(packed1, 4), nibble);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m512i first = broadcast_quad(q + r * x.q_stride);
          integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], low0, first);
          integers[r][j + 1] = _mm512_dpbusd_epi32(integers[r][j + 1], low1, first);
          const __m512i second = broadcast_quad(q + r * x.q_stride + 4);
          integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], high0, second);
          integers[r][j + 1] = _mm512_dpbusd_epi32(integers[r][j + 1], high1, second);
        }
      }
    }
    fold<kRows>(integers, x, g, panel.scales + g * kPanel * 2, sums);
  }
}

template <int kRows>
TS_INLINE void multiply_add(__m512 (&sums)[kRows][kVectors], const __m512 (&weights)[kVectors], const float* x,
                            int64_t stride) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512 value = _mm512_set1_ps(x[r * stride]);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) sums[r][j] = _mm512_fmadd_ps(value, weights[j], sums[r][j]);
  }
}

template <int kRows>
TS_INLINE void store(const __m512 (&from)[kRows][kVectors], float* sums) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) _mm512_store_ps(sums + r * kPanel + 16 * j, from[r][j]);
  }
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
    prefetch<kRows>(data);
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
  }
  store<kRows>(totals, sums);
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
    prefetch<kRows>(data);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_slli_epi32(load(data + 64 * j), 16));
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_and_si512(load(data + 64 * j), high_half));
    multiply_add<kRows>(totals, weights, x.x + k + 1, x.x_stride);
  }
  if (k < panel.columns) {  // the odd last column: its pair is padding, and x ends here
    __m512 weights[kVectors];
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_castsi512_ps(_mm512_slli_epi32(load(data + 64 * j), 16));
    multiply_add<kRows>(totals, weights, x.x + k, x.x_stride);
  }
  store<kRows>(totals, sums);
}

constexpr TileKernel kF32[kTileRows] = {f32_tile<1>, f32_tile<2>, f32_tile<3>, f32_tile<4>, f32_tile<5>, f32_tile<6>};
constexpr TileKernel kBf16[kTileRows] = {bf16_tile<1>, bf16_tile<2>, bf16_tile<3>, bf16_tile<4>, bf16_tile<5>, bf16_tile<6>};
constexpr TileKernel kInt8[kTileRows] = {int8_tile<1>, int8_tile<2>, int8_tile<3>, int8_tile<4>, int8_tile<5>, int8_tile<6>};
constexpr TileKernel kInt4[kTileRows] = {int4_tile<1>, int4_tile<2>, int4_tile<3>, int4_tile<4>, int4_tile<5>, int4_tile<6>};

}  // namespace

TileKernel tile_kernel(int32_t kind, int64_t rows) {
  switch (kind) {
    case TS_W_F32: return kF32[rows - 1];
    case TS_W_BF16: return kBf16[rows - 1];
    case TS_W_INT8: return kInt8[rows - 1];
    default: return kInt4[rows - 1];
  }
}

}  // namespace twostroke
#endif
