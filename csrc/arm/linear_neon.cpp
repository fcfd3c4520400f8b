// The register tiles of ts_linear for ARMv8-A, for floats and bytes. A tile has up to 4 rows and crosses a panel in strips that fit 16
// accumulators. A build with the dot product instructions uses them for bytes; the integers are the same.
#if defined(TS_LEVEL_NEON)
#include "twostroke/products/kernel_of.h"
#include "twostroke/neon/linear.h"

namespace twostroke {
namespace {

constexpr int64_t kTurn = 16;  // the k that one register of activations holds

// Weights become signed again, so the sums need no correction.
TS_INLINE int8x16_t signed_weights(const uint8_t* data) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(data), vdupq_n_u8(0x80))); }

// Without the dot product instructions, products that are not added yet take registers too, so the strip is narrower.
constexpr int byte_strip(int rows) { return !kLevel.dot_products && rows == 4 ? 2 : Columns128::strip_vectors(rows); }

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

// Multiplies one strip of one group.
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
  fold_columns<Columns128>(integers, x.scales + group.index * x.pair_stride, scales, sums);
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, FetchByTiles&, float* sums) {
  constexpr int kVectors = byte_strip(kRows);
  for (int64_t c = 0; c < kPanel; c += kVectors * kColumns) {
    group_strip<kRows, kVectors>(data + 4 * c, group.scales + 2 * c, group, x, sums + c);
  }
}

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) { return float_tile_of<Columns128>(kind, rows); }

GroupKernel int8_kernel(int64_t rows) {
  if constexpr (kLevel.matrix_products) {
    return rows == 1 ? int8_group<1> : int8_matrix_kernel(rows);
  } else {
    return kernel_of<GroupKernel, kTileRows>(rows, [](auto count) { return int8_group<count()>; });
  }
}

}  // namespace twostroke
#endif
