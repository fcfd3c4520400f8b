// The register tiles of ts_linear for ARMv8-A, floats and bytes: up to 4 rows; a panel is crossed in strips that fit 16 accumulators.
// Compiled with the dot product instructions, the bytes use them; the integers are the same.
#if defined(TS_LEVEL_NEON)
#include "twostroke/kernel_of.h"
#include "twostroke/neon/linear.h"
#include "twostroke/stream.h"

namespace twostroke {
namespace {

constexpr int64_t kTurn = 16;          // k of one register of activations
constexpr int64_t kBlockColumns = 64;  // k of a float block: its weights stay in the first-level cache between strips

// Weights are made signed again, so no correction.
TS_INLINE int8x16_t signed_weights(const uint8_t* data) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(data), vdupq_n_u8(0x80))); }

// Without the dot product instructions, the products that wait to be added take registers too.
constexpr int byte_strip(int rows) { return !kLevel.dot_products && rows == 4 ? 2 : strip_vectors(rows); }

template <int kLane, int kRows, int kVectors>
TS_INLINE void quad(const uint8_t* data, const int8x16_t (&activations)[kRows], Integers<kRows, kVectors>& integers) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    if (j % 4 == 0) prefetch_line(data + kLane * kQuadBytes + 16 * j);
    const int8x16_t weights = signed_weights(data + kLane * kQuadBytes + 16 * j);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) integers[r][j] = dot<kLane>(integers[r][j], weights, activations[r]);
  }
}

// One strip of one group.
template <int kRows, int kVectors>
TS_INLINE void group_strip(const uint8_t* data, const uint8_t* scales, const Group& group, const TileRows& x, float* sums) {
  Integers<kRows, kVectors> integers;
  clear<kRows, kVectors>(integers);
  const int8_t* q = x.q + group.first;
  for (int64_t k = 0; k < group.columns; k += kTurn, q += kTurn, data += kTurn / 4 * kQuadBytes) {
    int8x16_t activations[kRows];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) activations[r] = vld1q_s8(q + r * x.q_stride);
    quad<0, kRows, kVectors>(data, activations, integers);
    quad<1, kRows, kVectors>(data, activations, integers);
    quad<2, kRows, kVectors>(data, activations, integers);
    quad<3, kRows, kVectors>(data, activations, integers);
  }
  fold<kRows, kVectors>(integers, x, group.index, scales, sums);
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, float* sums) {
  constexpr int kVectors = byte_strip(kRows);
  for (int64_t c = 0; c < kPanel; c += kVectors * kColumns) {
    group_strip<kRows, kVectors>(data + 4 * c, group.scales + 2 * c, group, x, sums + c);
  }
}

struct F32Step {
  static constexpr int kWidth = 1;
  TS_INLINE static float32x4_t weights(const uint8_t* data, int64_t) { return vreinterpretq_f32_u8(vld1q_u8(data)); }
};

// A pair of bf16 is a 32-bit word: the even k in its low half, the odd k in its high half.
struct Bf16Step {
  static constexpr int kWidth = 2;
  TS_INLINE static float32x4_t weights(const uint8_t* data, int64_t odd) {
    const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(data));
    return vreinterpretq_f32_u32(odd ? vandq_u32(words, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(words, 16));
  }
};

template <int kRows, int kVectors>
using Totals = float32x4_t[kRows][kVectors];

// The first kWidth columns of a step.
template <class Step, int kWidth, int kRows, int kVectors>
TS_INLINE void multiply_add(Totals<kRows, kVectors>& totals, const uint8_t* data, const float* x, int64_t stride) {
  float32x4_t values[kWidth][kRows];
  TS_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) values[i][r] = vdupq_n_f32(x[r * stride + i]);
  }
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    TS_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float32x4_t weights = Step::weights(data + 16 * j, i);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) totals[r][j] = vfmaq_f32(totals[r][j], values[i][r], weights);
    }
    if (kRows == 1) load_after(&data, totals[0][j]);
  }
}

// Columns [first, last) of one strip, onto sums: leaving and taking up a float32 sum in memory changes nothing.
template <class Step, int kRows, int kVectors>
TS_INLINE void float_strip(const uint8_t* data, const TileRows& x, int64_t first, int64_t last, float* sums) {
  Totals<kRows, kVectors> totals;
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) totals[r][j] = vld1q_f32(sums + r * kPanel + kColumns * j);
  }
  int64_t k = first;
  for (; k + Step::kWidth <= last; k += Step::kWidth, data += kQuadBytes) {
    TS_UNROLL
    for (int j = 0; j < kVectors; j += 4) prefetch_line(data + 16 * j);
    multiply_add<Step, Step::kWidth, kRows, kVectors>(totals, data, x.x + k, x.x_stride);
  }
  // the odd last column of bf16: its pair is padding, and x ends here
  if (k < last) multiply_add<Step, 1, kRows, kVectors>(totals, data, x.x + k, x.x_stride);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) vst1q_f32(sums + r * kPanel + kColumns * j, totals[r][j]);
  }
}

template <class Step, int kRows>
void float_tile(const Panel& panel, const TileRows& x, float* sums) {
  constexpr int kVectors = strip_vectors(kRows);
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  for (int64_t k = 0; k < panel.columns; k += kBlockColumns) {
    const int64_t last = panel.columns - k < kBlockColumns ? panel.columns : k + kBlockColumns;
    for (int64_t c = 0; c < kPanel; c += kVectors * kColumns) {
      float_strip<Step, kRows, kVectors>(panel.data + k / Step::kWidth * kQuadBytes + 4 * c, x, k, last, sums + c);
    }
  }
}

template <class Step>
constexpr TileKernel kFloat[kTileRows] = {float_tile<Step, 1>, float_tile<Step, 2>, float_tile<Step, 3>, float_tile<Step, 4>};

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) {
  return kind == TS_W_F32 ? kFloat<F32Step>[rows - 1] : kFloat<Bf16Step>[rows - 1];
}

GroupKernel int8_kernel(int64_t rows) {
  if constexpr (kLevel.matrix_products) {
    return rows == 1 ? int8_group<1> : int8_matrix_kernel(rows);
  } else {
    return kernel_of<GroupKernel, kTileRows>(rows, [](auto count) { return int8_group<count()>; });
  }
}

}  // namespace twostroke
#endif
