// This file computes the register tile of ts_linear on bytes with ARMv8.6's matrix products. One instruction multiplies eight k of two
// columns and two rows.
#if defined(TS_LEVEL_I8MM)
#include "twostroke/neon/linear.h"
#include "twostroke/stream.h"

namespace twostroke {
namespace {

constexpr int64_t kTurn = 16;  // the k that one register of activations holds
constexpr int kVectors = 4;  // vectors of a strip

// Sums of four columns by two rows. The first register has columns 0 and 2, the second has columns 1 and 3; each has the first row, then
// the second.
struct Square {
  int32x4_t even, odd;
};

template <int kPairs>
using Squares = Square[kPairs][kVectors];

// Adds eight k of a strip. Weights are unsigned; the corrections with which the sums begin undo their offset.
template <int kPairs>
TS_INLINE void eight(const uint8_t* data, const int8x16_t (&activations)[kPairs], Squares<kPairs>& sums) {
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    if (j % 4 == 0) {
      prefetch_line(data + 16 * j);
      prefetch_line(data + kQuadBytes + 16 * j);
    }
    const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(data + 16 * j)), high = vreinterpretq_u32_u8(vld1q_u8(data + kQuadBytes + 16 * j));
    const uint8x16_t even = vreinterpretq_u8_u32(vtrn1q_u32(low, high)), odd = vreinterpretq_u8_u32(vtrn2q_u32(low, high));
    TS_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      sums[p][j].even = vusmmlaq_s32(sums[p][j].even, even, activations[p]);
      sums[p][j].odd = vusmmlaq_s32(sums[p][j].odd, odd, activations[p]);
    }
  }
}

// Where the number of rows is odd, the last row is its own partner.
template <int kRows>
constexpr int partner(int pair) {
  return 2 * pair + 1 < kRows ? 2 * pair + 1 : 2 * pair;
}

template <int kRows, int kPairs>
TS_INLINE void begin(const TileRows& x, int64_t group, Squares<kPairs>& sums) {
  TS_UNROLL
  for (int p = 0; p < kPairs; ++p) {
    const int32x2_t both = {x.corrections[group * x.pair_stride + 2 * p], x.corrections[group * x.pair_stride + partner<kRows>(p)]};
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) sums[p][j] = {vcombine_s32(both, both), vcombine_s32(both, both)};
  }
}

template <int kRows>
TS_INLINE void group_strip(const uint8_t* data, const uint8_t* scales, const Group& group, const TileRows& x, float* sums) {
  constexpr int kPairs = (kRows + 1) / 2;
  Squares<kPairs> squares;
  begin<kRows, kPairs>(x, group.index, squares);
  const int8_t* q = x.q + group.first;
  for (int64_t k = 0; k < group.columns; k += kTurn, q += kTurn, data += kTurn / 4 * kQuadBytes) {
    int8x16_t first[kPairs], second[kPairs];
    TS_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const int64x2_t upper = vreinterpretq_s64_s8(vld1q_s8(q + 2 * p * x.q_stride));
      const int64x2_t lower = vreinterpretq_s64_s8(vld1q_s8(q + partner<kRows>(p) * x.q_stride));
      first[p] = vreinterpretq_s8_s64(vzip1q_s64(upper, lower));
      second[p] = vreinterpretq_s8_s64(vzip2q_s64(upper, lower));
    }
    eight<kPairs>(data, first, squares);
    eight<kPairs>(data + 2 * kQuadBytes, second, squares);
  }
  Integers<kRows, kVectors> integers;
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const Square& square = squares[r / 2][j];
      integers[r][j] = r % 2 == 0 ? vtrn1q_s32(square.even, square.odd) : vtrn2q_s32(square.even, square.odd);
    }
  }
  fold_columns<Columns128>(integers, x.scales + group.index * x.pair_stride, scales, sums);
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, FetchByTiles&, float* sums) {
  for (int64_t c = 0; c < kPanel; c += kVectors * kColumns) {
    group_strip<kRows>(data + 4 * c, group.scales + 2 * c, group, x, sums + c);
  }
}

constexpr GroupKernel kInt8[kTileRows - 1] = {int8_group<2>, int8_group<3>, int8_group<4>};

}  // namespace

GroupKernel int8_matrix_kernel(int64_t rows) { return kInt8[rows - 2]; }

}  // namespace twostroke
#endif
