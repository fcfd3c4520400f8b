// Multiplies many rows of ts_linear for AVX-512 with VNNI, on CPUs without matrix registers, in blocks of up to 16 rows by 16 columns. One
// register of weights is multiplied by all rows of a block before the next one is loaded. So memory is read at an even pace, and int4 is
// unpacked in registers on ports that the products do not use. Measured on 256 k by 64 columns from the first-level cache: products reach
// 98% of their peak. Unpacking adds 120 ns for each block of rows, where a row takes 71 ns.
#if defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_AMX)
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

constexpr int kTurn = 4;  // quads of k between two moments to fetch ahead

// One block of rows, and its part of one group.
struct BlockRows {
  const int8_t* q;  // (quads, rows, 4)
  const float* scales;
  const int32_t* corrections;
};

// The vectors of columns at once; there are registers for all of their sums. The whole width of a panel reads memory from front to back.
constexpr int kWholeWidthRows = 6;
constexpr int across(int rows) { return rows <= kWholeWidthRows ? kVectors : rows <= 12 ? 2 : 1; }

// data: (columns / 4, 64, 4) bytes, weight + 128.
template <int kRows>
void int8_block(const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead, float* sums) {
  constexpr int kAcross = across(kRows);
  const int64_t bytes = group.columns * kPanel;
  for (int j = 0; j < kVectors; j += kAcross) {
    __m512i integers[kRows][kAcross];
    begin(x.corrections, integers);
    const uint8_t* from = data + 64 * j;
    const int8_t* q = x.q;
    for (int64_t at = 0; at < bytes; at += kTurn * kQuadBytes, from += kTurn * kQuadBytes, q += kTurn * 4 * kRows) {
      const Ahead near = Ahead::of<kFarOfOne, kNearOfOne>(data, bytes, group.after, at);
      if (kAcross < kVectors) ahead->step();
      TS_UNROLL
      for (int i = 0; i < kTurn; ++i) {
        __m512i weights[kAcross];
        TS_UNROLL
        for (int n = 0; n < kAcross; ++n) {
          weights[n] = load(from + i * kQuadBytes + 64 * n);
          if (kAcross == kVectors) near.prefetch(from + i * kQuadBytes + 64 * n);
        }
        multiply(weights, q + i * 4 * kRows, 4, integers);
      }
    }
    fold_columns<Columns512>(integers, x.scales, group.scales + 32 * j, sums + 16 * j);
  }
}

// What happens to unpacked bytes during their products. They are stored for the next blocks of rows, in the form that int8_block reads, or
// dropped.
struct Kept {
  uint8_t* block;
  TS_INLINE void operator()(int64_t at, __m512i four) const { _mm512_storeu_si512(block + at, four); }
};
struct Dropped {
  TS_INLINE void operator()(int64_t, __m512i) const {}
};

template <int kRows, class Keep>
void int4_block(const uint8_t* data, const Group& group, const BlockRows& x, const Keep& keep, Fetch* ahead, float* sums) {
  for (int j = 0; j < kVectors; ++j) {
    __m512i integers[kRows][1];
    begin(x.corrections, integers);
    const uint8_t* step = data;
    const int8_t* q = x.q;
    for (int64_t k = 0; k < group.columns; k += kStep, step += kInt4StepBytes, q += kStep * kRows) {
      ahead->step();
      unpack_step<128>(step, j, [&](int quad, __m512i four) __attribute__((always_inline)) {
        keep(k * kPanel + quad * kQuadBytes + 64 * j, four);
        multiply<kRows, 1>({four}, q + quad * 4 * kRows, 4, integers);
      });
    }
    fold_columns<Columns512>(integers, x.scales, group.scales + 32 * j, sums + 16 * j);
  }
}

typedef void (*BlockKernel)(const uint8_t* data, const Group&, const BlockRows&, Fetch* ahead, float* sums);
typedef void (*PackedKernel)(const uint8_t* data, const Group&, const BlockRows&, const Dropped&, Fetch* ahead, float* sums);

BlockKernel int8_of(int64_t rows) {
  return kernel_of<BlockKernel, kRowBlock>(rows, [](auto count) { return int8_block<count()>; });
}

PackedKernel int4_of(int64_t rows) {
  return kernel_of<PackedKernel, kRowBlock>(rows, [](auto count) { return int4_block<count(), Dropped>; });
}

// How often a product of a group and these rows may fetch lines of the next group. This is once for each kTurn quads of k, and in a block
// of int4 once for each step.
int64_t moments_of(int64_t columns, int64_t rows) {
  const int64_t last = rows % kRowBlock;
  const int wide = across(static_cast<int>(last));
  return columns / (4 * kTurn) * (rows / kRowBlock * kVectors + (last == 0 || wide == kVectors ? 0 : kVectors / wide));
}

int64_t int4_moments_of(int64_t columns, int64_t rows) {
  return columns / kStep * kVectors + moments_of(columns, rows > kRowBlock ? rows - kRowBlock : 0);
}

}  // namespace

// The first block of rows unpacks int4 weights to bytes during its products. The other blocks read these bytes.
void block_group(int32_t kind, const Group& group, const TileRows& x, int64_t rows, uint8_t* block, float* sums) {
  const bool packed = kind == TS_W_INT4;
  const int64_t lines = panel_bytes(kind, group.columns) / 64;
  const int64_t moments = packed ? int4_moments_of(group.columns, rows) : moments_of(group.columns, rows);
  Fetch ahead = {group.after, lines, moments == 0 ? 0 : (lines + moments - 1) / moments};
  const uint8_t* data = packed ? block : group.data;
  const int64_t first_pair = group.index * x.pair_stride;
  const int8_t* q = x.q + group.index * x.q_group_stride;
  for (int64_t r = 0; r < rows; r += kRowBlock, q += x.q_stride, sums += kRowBlock * kPanel) {
    const int64_t count = rows - r < kRowBlock ? rows - r : kRowBlock;
    const BlockRows some = {q, x.scales + first_pair + r, x.corrections + first_pair + r};
    if (!packed || r > 0) {
      int8_of(count)(data, group, some, &ahead, sums);
    } else if (rows > kRowBlock) {
      int4_block<kRowBlock>(group.data, group, some, Kept{block}, &ahead, sums);
    } else {
      int4_of(count)(group.data, group, some, {}, &ahead, sums);
    }
  }
}

}  // namespace twostroke
#endif
