// int4 weights of ts_linear for ARMv8-A. For many rows the weights are unpacked to bytes. With the dot product instructions, few rows are
// multiplied without this step, from the nibbles themselves.
#if defined(TS_LEVEL_NEON)
#include "twostroke/products/kernel_of.h"
#include "twostroke/neon/linear.h"

namespace twostroke {
namespace {

constexpr int64_t kBlock = 16;  // columns whose multipliers fill a register

TS_INLINE uint8x16_t low_nibbles(uint8x16_t bytes) { return vandq_u8(bytes, vdupq_n_u8(15)); }
TS_INLINE uint8x16_t high_nibbles(uint8x16_t bytes) { return vshrq_n_u8(bytes, 4); }

// Stores (nibble - 8) * multiplier + 128, modulo 256.
TS_INLINE void put(uint8x16_t nibbles, uint8x16_t multipliers, uint8_t* bytes) {
  const uint8x16_t products = vmulq_u8(vsubq_u8(nibbles, vdupq_n_u8(8)), multipliers);
  vst1q_u8(bytes, veorq_u8(products, vdupq_n_u8(0x80)));
}

// Unpacks 16 k of 16 columns, whose multipliers are given.
TS_INLINE void unpack_subgroup(const uint8_t* octs, uint8x16_t multipliers, uint8_t* bytes) {
  const uint8x16_t four_times = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  TS_UNROLL
  for (int j = 0; j < 4; ++j) {
    const uint8x16_t m = vqtbl1q_u8(multipliers, vaddq_u8(four_times, vdupq_n_u8(static_cast<uint8_t>(4 * j))));
    TS_UNROLL
    for (int oct = 0; oct < 2; ++oct) {
      const uint8x16_t packed = vld1q_u8(octs + oct * kQuadBytes + 16 * j);
      put(low_nibbles(packed), m, bytes + 2 * oct * kQuadBytes + 16 * j);
      put(high_nibbles(packed), m, bytes + (2 * oct + 1) * kQuadBytes + 16 * j);
    }
  }
}

constexpr int kBlockVectors = 2;  // vectors whose eight multipliers are loaded at once

// Adds 16 k of 8 columns: the elements are multiplied by the activations and summed, and this sum is multiplied once by the multiplier.
template <int kRows, int kVectors>
TS_INLINE void subgroup(const uint8_t* octs, uint8x8_t multipliers, const int8_t* q, const int32_t* corrections, const TileRows& x,
                        int first, Integers<kRows, kVectors>& totals) {
  const uint16x8_t wide = vmovl_u8(multipliers);
  int8x16_t activations[kRows];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) activations[r] = vld1q_s8(q + r * x.q_stride);
  TS_UNROLL
  for (int j = 0; j < kBlockVectors; ++j) {
    const uint8x16_t packed0 = vld1q_u8(octs + 16 * j), packed1 = vld1q_u8(octs + kQuadBytes + 16 * j);
    const int8x16_t low0 = vreinterpretq_s8_u8(low_nibbles(packed0)), high0 = vreinterpretq_s8_u8(high_nibbles(packed0));
    const int8x16_t low1 = vreinterpretq_s8_u8(low_nibbles(packed1)), high1 = vreinterpretq_s8_u8(high_nibbles(packed1));
    const int32x4_t m = vreinterpretq_s32_u32(vmovl_u16(j == 0 ? vget_low_u16(wide) : vget_high_u16(wide)));
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      int32x4_t sum = dot<0>(vdupq_n_s32(corrections[r * x.subgroups]), low0, activations[r]);
      sum = dot<1>(sum, high0, activations[r]);
      sum = dot<2>(sum, low1, activations[r]);
      sum = dot<3>(sum, high1, activations[r]);
      totals[r][first + j] = vmlaq_s32(totals[r][first + j], sum, m);
    }
  }
}

// Multiplies one strip of one group. The strip begins at column `first` of the panel.
template <int kRows, int kVectors>
TS_INLINE void group_strip(const Group& group, const TileRows& x, int64_t first, float* sums) {
  constexpr int64_t kBlockColumns = kBlockVectors * kColumns;
  Integers<kRows, kVectors> totals;
  clear<kRows, kVectors>(totals);
  const uint8_t* step = group.data;
  for (int64_t k = group.first; k < group.first + group.columns; k += kStep, step += kInt4StepBytes) {
    for (int64_t pair = 0; pair < 2; ++pair) {
      const int8_t* q = x.q + k + pair * 2 * kSubgroup;
      const int32_t* corrections = x.sub_corrections + k / kSubgroup + pair * 2;
      const uint8_t* octs = step + kMultiplierBytes + pair * 4 * kQuadBytes + 4 * first;
      TS_UNROLL
      for (int v = 0; v < kVectors; v += kBlockVectors) {
        const uint8x8_t both = vld1_u8(step + pair * kPanel + first + v / kBlockVectors * kBlockColumns);
        const uint8_t* at = octs + 16 * v;
        TS_UNROLL
        for (int i = 0; i < 4 && v % 4 == 0; ++i) prefetch_line(at + i * kQuadBytes);
        subgroup<kRows, kVectors>(at, vand_u8(both, vdup_n_u8(15)), q, corrections, x, v, totals);
        subgroup<kRows, kVectors>(at + 2 * kQuadBytes, vshr_n_u8(both, 4), q + kSubgroup, corrections + 1, x, v, totals);
      }
    }
  }
  fold_columns<Columns128>(totals, x.scales + group.index * x.pair_stride, group.scales + 2 * first, sums + first);
}

template <int kRows>
void int4_group(const uint8_t*, const Group& group, const TileRows& x, FetchByTiles&, float* sums) {
  constexpr int kVectors = kRows == 1 ? 4 : 2;  // fewer than for bytes: unpacked numbers take registers
  for (int64_t c = 0; c < kPanel; c += kVectors * kColumns) group_strip<kRows, kVectors>(group, x, c, sums);
}

}  // namespace

GroupKernel int4_kernel(int64_t rows) {
  if constexpr (kLevel.dot_products) {
    return kernel_of<GroupKernel, kInt4Rows>(rows, [](auto count) { return int4_group<count()>; });
  } else {
    return nullptr;  // kInt4Rows is 0 here, so no caller asks for a tile
  }
}

void unpack_int4(const uint8_t* packed, int64_t columns, uint8_t* bytes) {
  for (int64_t k = 0; k < columns; k += kStep, packed += kInt4StepBytes, bytes += kStep * kPanel) {
    const uint8_t* octs = packed + kMultiplierBytes;
    for (int64_t c = 0; c < kPanel; c += kBlock) {
      TS_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const uint8x16_t both = vld1q_u8(packed + pair * kPanel + c);
        unpack_subgroup(octs + pair * 4 * kQuadBytes + 4 * c, low_nibbles(both), bytes + pair * 8 * kQuadBytes + 4 * c);
        unpack_subgroup(octs + (pair * 4 + 2) * kQuadBytes + 4 * c, high_nibbles(both), bytes + (pair * 8 + 4) * kQuadBytes + 4 * c);
      }
    }
  }
}

}  // namespace twostroke
#endif
