// Functions of kernels of packed weights on registers of columns, for any width. Columns describes an instruction set: the number of
// columns (kCount), registers of Floats and of Integers, and functions on them.
#pragma once
#include "twostroke/products/linear.h"
#include "twostroke/stream.h"

namespace twostroke {

// Computes sums = fma(float(integers), x_scale * w_scale, sums) for one group of some rows. x_scales: one for each row. scales and sums
// begin at the first of these columns.
template <class Columns, int kRows, int kVectors>
TS_INLINE void fold_columns(const typename Columns::Integers (&integers)[kRows][kVectors], const float* x_scales, const uint8_t* scales,
                            float* sums) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const typename Columns::Floats w_scale = Columns::from_bf16(scales + 2 * Columns::kCount * j);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* at = sums + r * kPanel + Columns::kCount * j;
      const typename Columns::Floats scale = Columns::multiply(Columns::all(x_scales[r]), w_scale);
      Columns::store(at, Columns::multiply_add(Columns::to_floats(integers[r][j]), scale, Columns::load(at)));
    }
  }
}

// Loads the weights of some columns at one k. kWidth: the number of k that lie together. odd: which of them.
template <class Columns>
struct F32Weights {
  static constexpr int kWidth = 1;
  TS_INLINE static typename Columns::Floats at(const uint8_t* data, int64_t) { return Columns::from_f32(data); }
};

// A pair of bf16 is a 32-bit word: the even k in its low half, the odd k in its high half.
template <class Columns>
struct Bf16Weights {
  static constexpr int kWidth = 2;
  TS_INLINE static typename Columns::Floats at(const uint8_t* data, int64_t odd) {
    return odd ? Columns::high_halves(data) : Columns::low_halves(data);
  }
};

constexpr int64_t kBlockColumns = 64;  // the k of a float block, whose weights stay in the first-level cache between strips

// Adds columns [first, last) of one strip to sums. A float32 sum that is stored in memory and loaded again does not change.
template <class Columns, class Weights, int kRows, int kVectors>
TS_INLINE void float_strip(const uint8_t* data, const TileRows& x, int64_t first, int64_t last, float* sums) {
  constexpr int kBytes = 4 * Columns::kCount, kLine = 64 / kBytes;  // registers in a cache line
  typename Columns::Floats totals[kRows][kVectors];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) totals[r][j] = Columns::load(sums + r * kPanel + Columns::kCount * j);
  }
  int64_t k = first;
  for (; k + Weights::kWidth <= last; k += Weights::kWidth, data += kQuadBytes) {
    TS_UNROLL
    for (int j = 0; j < kVectors; j += kLine) prefetch_line(data + kBytes * j);
    Columns::template add_products<Weights, Weights::kWidth>(totals, data, x.x + k, x.x_stride);
  }
  // This is the odd last column of bf16; its partner is padding, and x ends here.
  if (k < last) Columns::template add_products<Weights, 1>(totals, data, x.x + k, x.x_stride);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) Columns::store(sums + r * kPanel + Columns::kCount * j, totals[r][j]);
  }
}

template <class Columns, class Weights, int kRows>
void float_tile(const Panel& panel, const TileRows& x, float* sums) {
  constexpr int kVectors = Columns::strip_vectors(kRows);
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  for (int64_t k = 0; k < panel.columns; k += kBlockColumns) {
    const int64_t last = panel.columns - k < kBlockColumns ? panel.columns : k + kBlockColumns;
    for (int64_t c = 0; c < kPanel; c += kVectors * Columns::kCount) {
      float_strip<Columns, Weights, kRows, kVectors>(panel.data + k / Weights::kWidth * kQuadBytes + 4 * c, x, k, last, sums + c);
    }
  }
}

template <class Columns, class Weights>
constexpr TileKernel kFloatTiles[4] = {float_tile<Columns, Weights, 1>, float_tile<Columns, Weights, 2>, float_tile<Columns, Weights, 3>,
                                       float_tile<Columns, Weights, 4>};

template <class Columns>
TileKernel float_tile_of(int32_t kind, int64_t rows) {
  if (kind == TS_W_F32) return kFloatTiles<Columns, F32Weights<Columns>>[rows - 1];
  return kFloatTiles<Columns, Bf16Weights<Columns>>[rows - 1];
}

}  // namespace twostroke
