// The register tile of ts_linear for AVX2 and FMA, with or without VNNI: up to 4 rows; a panel is crossed in strips that fit 8 accumulators.
#if defined(TS_LEVEL_AVX2)
#include <type_traits>

#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx2.h"

namespace twostroke {
namespace {

constexpr int kLanes = 8;                  // columns of one register
constexpr int64_t kBlockColumns = 64;      // k of a float block: its weights stay in the first-level cache between strips

// Registers across a strip: one row crosses the panel in one strip, so that it streams.
constexpr int strip_vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

// Weights as they lie, 128 too many: sums begin with what undoes that.
struct OffsetStep {
  static constexpr int32_t kCorrected = 1;
  __m256i weight;
  TS_INLINE explicit OffsetStep(const uint8_t* data) : weight(load(data)) {}
  TS_INLINE __m256i dot(__m256i total, const int8_t* q) const { return add_products(total, weight, broadcast_quad(q)); }
};

// Weights are made signed again, so no correction. |w| * |x| <= 128 * 127: two of them do not saturate 16 bits.
struct SignedStep {
  static constexpr int32_t kCorrected = 0;
  __m256i magnitude, weight;
  TS_INLINE explicit SignedStep(const uint8_t* data) {
    weight = _mm256_xor_si256(load(data), _mm256_set1_epi8(static_cast<char>(0x80)));
    magnitude = _mm256_abs_epi8(weight);
  }
  TS_INLINE __m256i dot(__m256i total, const int8_t* q) const {
    return add_products(total, magnitude, _mm256_sign_epi8(broadcast_quad(q), weight));
  }
};

using Int8Step = std::conditional_t<kAnyBytes, OffsetStep, SignedStep>;

// One strip of one group: integers exactly, then sums = fma(float(integers), x_scale * w_scale, sums).
template <int kRows, int kVectors>
TS_INLINE void group_strip(const uint8_t* data, const uint8_t* scales, const Group& group, const TileRows& x, float* sums) {
  __m256i integers[kRows][kVectors];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      integers[r][j] = _mm256_set1_epi32(Int8Step::kCorrected * x.corrections[group.index * x.pair_stride + r]);
    }
  }
  const int8_t* q = x.q + group.first;
  for (int64_t k = 0; k < group.columns; k += 4, q += 4, data += kQuadBytes) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      if (j % 2 == 0) prefetch_line(data + 32 * j);
      const Int8Step step(data + 32 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) integers[r][j] = step.dot(integers[r][j], q + r * x.q_stride);
    }
  }
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const __m256 w_scale = load_bf16(scales + 2 * kLanes * j);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* at = sums + r * kPanel + kLanes * j;
      const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(x.scales[group.index * x.pair_stride + r]), w_scale);
      _mm256_store_ps(at, _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers[r][j]), scale, _mm256_load_ps(at)));
    }
  }
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, float* sums) {
  constexpr int kVectors = strip_vectors(kRows);
  for (int64_t c = 0; c < kPanel; c += kVectors * kLanes) {
    group_strip<kRows, kVectors>(data + 4 * c, group.scales + 2 * c, group, x, sums + c);
  }
}

struct F32Step {
  static constexpr int64_t kColumns = 1;
  TS_INLINE static __m256 weights(const uint8_t* data, int64_t) { return _mm256_castsi256_ps(load(data)); }
};

// A pair of bf16 is a 32-bit word: the even k in its low half, the odd k in its high half.
struct Bf16Step {
  static constexpr int64_t kColumns = 2;
  TS_INLINE static __m256 weights(const uint8_t* data, int64_t odd) {
    const __m256i high_half = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
    return _mm256_castsi256_ps(odd ? _mm256_and_si256(load(data), high_half) : _mm256_slli_epi32(load(data), 16));
  }
};

template <int kRows, int kVectors>
using Totals = __m256[kRows][kVectors];

template <class Step, int kRows, int kVectors>
TS_INLINE void multiply_add(Totals<kRows, kVectors>& totals, const uint8_t* data, int64_t odd, const float* x, int64_t stride) {
  __m256 values[kRows];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) values[r] = _mm256_set1_ps(x[r * stride]);
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const __m256 weights = Step::weights(data + 32 * j, odd);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r][j] = _mm256_fmadd_ps(values[r], weights, totals[r][j]);
  }
}

// Columns [first, last) of one strip, onto sums: leaving and taking up a float32 sum in memory changes nothing.
template <class Step, int kRows, int kVectors>
TS_INLINE void float_strip(const uint8_t* data, const TileRows& x, int64_t first, int64_t last, float* sums) {
  Totals<kRows, kVectors> totals;
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) totals[r][j] = _mm256_load_ps(sums + r * kPanel + kLanes * j);
  }
  int64_t k = first;
  for (; k + Step::kColumns <= last; k += Step::kColumns, data += kQuadBytes) {
    TS_UNROLL
    for (int j = 0; j < kVectors; j += 2) prefetch_line(data + 32 * j);
    TS_UNROLL
    for (int64_t i = 0; i < Step::kColumns; ++i) {
      multiply_add<Step, kRows, kVectors>(totals, data, i, x.x + k + i, x.x_stride);
    }
  }
  // the odd last column of bf16: its pair is padding, and x ends here
  if (k < last) multiply_add<Step, kRows, kVectors>(totals, data, 0, x.x + k, x.x_stride);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) _mm256_store_ps(sums + r * kPanel + kLanes * j, totals[r][j]);
  }
}

template <class Step, int kRows>
void float_tile(const Panel& panel, const TileRows& x, float* sums) {
  constexpr int kVectors = strip_vectors(kRows);
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  for (int64_t k = 0; k < panel.columns; k += kBlockColumns) {
    const int64_t last = panel.columns - k < kBlockColumns ? panel.columns : k + kBlockColumns;
    for (int64_t c = 0; c < kPanel; c += kVectors * kLanes) {
      float_strip<Step, kRows, kVectors>(panel.data + k / Step::kColumns * kQuadBytes + 4 * c, x, k, last, sums + c);
    }
  }
}

constexpr GroupKernel kInt8[kTileRows] = {int8_group<1>, int8_group<2>, int8_group<3>, int8_group<4>};
template <class Step>
constexpr TileKernel kFloat[kTileRows] = {float_tile<Step, 1>, float_tile<Step, 2>, float_tile<Step, 3>, float_tile<Step, 4>};

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) {
  return kind == TS_W_F32 ? kFloat<F32Step>[rows - 1] : kFloat<Bf16Step>[rows - 1];
}

GroupKernel int8_kernel(int64_t rows) { return kInt8[rows - 1]; }

}  // namespace twostroke
#endif
