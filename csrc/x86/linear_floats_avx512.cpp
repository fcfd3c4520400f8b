// Multiplies several tiles of rows by a panel of floats, for AVX-512. A few columns are widened to float32 in the first-level cache and
// multiplied by all tiles. Each tile fetches an equal part of the next few columns. The sums of the other tiles stay in that cache.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/products/linear_job.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

constexpr int64_t kColumns = 64;  // all tiles are multiplied by so many columns before the next: 16 KiB of float32

// These columns as floats (columns, 64).
struct Stretch {
  const float* weights;
  int64_t columns;
};

// Adds the products of one stretch of columns to sums (rows, 64). x points to its first column.
template <int kRows>
void add_stretch(const Stretch& stretch, const float* x, int64_t x_stride, Fetch ahead, float* sums) {
  __m512 totals[kRows][kVectors];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) totals[r][j] = _mm512_load_ps(sums + r * kPanel + 16 * j);
  }
  const float* from = stretch.weights;
  for (int64_t k = 0; k < stretch.columns; ++k, from += kPanel) {
    ahead.step();
    __m512 weights[kVectors];
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = _mm512_loadu_ps(from + 16 * j);
    multiply_add<kRows>(totals, weights, x + k, x_stride);
  }
  store_rows(totals, sums);
}

using Kernel = void (*)(const Stretch&, const float* x, int64_t x_stride, Fetch ahead, float* sums);

// Widens pairs of bf16 to floats (columns, 64). An odd last column has a pair of its own, whose other half is padding.
void widen(const uint8_t* data, int64_t columns, float* to) {
  for (int64_t k = 0; k < columns; k += 2, data += kQuadBytes, to += 2 * kPanel) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      _mm512_store_ps(to + 16 * j, Columns512::low_halves(data + 64 * j));
      _mm512_store_ps(to + kPanel + 16 * j, Columns512::high_halves(data + 64 * j));
    }
  }
}

}  // namespace

void float_tiles(int32_t kind, const Panel& panel, const uint8_t* after, const TileRows& x, int64_t rows, float* sums) {
  const int64_t column_bytes = kPanel * (kind == TS_W_F32 ? 4 : 2), tiles = (rows + kTileRows - 1) / kTileRows;
  alignas(64) float block[kColumns * kPanel];
  memset(sums, 0, sizeof(float) * static_cast<size_t>(rows * kPanel));
  for (int64_t first = 0; first < panel.columns; first += kColumns) {
    const int64_t left = panel.columns - first, columns = left < kColumns ? left : kColumns;
    const uint8_t* data = panel.data + first * column_bytes;
    FetchByTiles ahead = {left > kColumns ? data + kColumns * column_bytes : after, kColumns * column_bytes / 64, tiles};
    if (kind == TS_W_BF16) widen(data, columns, block);
    const Stretch stretch = {kind == TS_W_BF16 ? block : reinterpret_cast<const float*>(data), columns};
    each_tile(0, rows, kTileRows, [&](int64_t row, int64_t count) {
      const Kernel kernel = kernel_of<Kernel, kTileRows>(count, [](auto number) { return add_stretch<number()>; });
      kernel(stretch, x.x + row * x.x_stride + first, x.x_stride, ahead.next(columns), sums + row * kPanel);
    });
  }
}

}  // namespace twostroke
#endif
