// Multiplies many rows of ts_linear for AVX-512 with VNNI, on CPUs without matrix registers, in blocks of up to 16 rows. A block is computed
// in bands of up to 6 rows by the panel's whole width, so that 24 products share 10 loads. If one register of weights were multiplied by
// 16 rows, each product would need a load of its own, and loads would limit the speed. int4 is unpacked to bytes once for all rows.
#if defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_AMX)
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

constexpr int kTurn = 4;  // quads of k between two moments to fetch ahead

// One block of rows, and its part of one group. after: the q of the block after it.
struct BlockRows {
  const int8_t *q, *after;  // (quads, rows, 4)
  const float* scales;
  const int32_t* corrections;
};

constexpr int kBandRows = 6;  // 24 sums, 4 weights and an activation: 29 of 32 registers
constexpr int bands(int rows) { return (rows + kBandRows - 1) / kBandRows; }

// Fetches as many bytes as 16 rows have in kTurn quads.
TS_INLINE void fetch_lines(const int8_t* from) {
  TS_UNROLL
  for (int line = 0; line < kTurn; ++line) __builtin_prefetch(from + 64 * line, 0, 3);
}

// Multiplies rows kFirst to kFirst + kBand of kRows. data: (columns / 4, 64, 4) bytes, weight + 128. A single band reads memory from front
// to back, and fetches the lines after those that it reads. Of several bands, the first fetches the next block's activations, and the
// second fetches its sums.
template <int kRows, int kFirst, int kBand>
TS_INLINE void int8_band(const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead, float* sums) {
  __m512i integers[kBand][kVectors];
  begin(x.corrections + kFirst, integers);
  const int64_t bytes = group.columns * kPanel;
  const int8_t* q = x.q + 4 * kFirst;
  for (int64_t at = 0; at < bytes; at += kTurn * kQuadBytes, q += kTurn * 4 * kRows) {
    const Ahead near = Ahead::of<kFarOfOne, kNearOfOne>(data, bytes, group.after, at);
    if constexpr (kBand < kRows) {
      ahead->step();
      if (kFirst + kBand < kRows) fetch_lines((kFirst == 0 ? x.after : reinterpret_cast<const int8_t*>(sums + kRows * kPanel)) + at / 4);
    }
    TS_UNROLL
    for (int i = 0; i < kTurn; ++i) {
      const uint8_t* from = data + at + i * kQuadBytes;
      __m512i weights[kVectors];
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        weights[j] = load(from + 64 * j);
        if (kBand == kRows) near.prefetch(from + 64 * j);
      }
      multiply(weights, q + i * 4 * kRows, 4, integers);
    }
  }
  fold_columns<Columns512>(integers, x.scales + kFirst, group.scales, sums + kFirst * kPanel);
}

template <int kRows, int... kBand>
TS_INLINE void each_band(std::integer_sequence<int, kBand...>, const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead,
                         float* sums) {
  constexpr int kBands = sizeof...(kBand);
  (int8_band<kRows, kRows * kBand / kBands, kRows * (kBand + 1) / kBands - kRows * kBand / kBands>(data, group, x, ahead, sums), ...);
}

template <int kRows>
void int8_block(const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead, float* sums) {
  each_band<kRows>(std::make_integer_sequence<int, bands(kRows)>(), data, group, x, ahead, sums);
}

// Products of up to this many rows unpack int4 in registers. Products of more rows unpack a whole group first and multiply it in bands.
// With 9 to 12 rows this takes 2 to 5% less time, and with 16 rows 1% less.
constexpr int kRowsInRegisters = 8;

// Multiplies a single block by a group of int4, which is unpacked in registers. Unpacking takes ports that the products do not use, and no
// other block, nor remainders, would read the bytes.
template <int kRows>
void int4_block(const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead, float* sums) {
  for (int j = 0; j < kVectors; ++j) {
    __m512i integers[kRows][1];
    begin(x.corrections, integers);
    const uint8_t* step = data;
    const int8_t* q = x.q;
    for (int64_t k = 0; k < group.columns; k += kStep, step += kInt4StepBytes, q += kStep * kRows) {
      ahead->step();
      unpack_step<128>(step, j, [&](int quad, __m512i four) TS_ALWAYS { multiply<kRows, 1>({four}, q + quad * 4 * kRows, 4, integers); });
    }
    fold_columns<Columns512>(integers, x.scales, group.scales + 32 * j, sums + 16 * j);
  }
}

// Unpacks a group of int4 to the form that int8_band reads.
void unpack_group(const Group& group, Fetch* ahead, uint8_t* to) {
  const uint8_t* step = group.data;
  for (int64_t k = 0; k < group.columns; k += kStep, step += kInt4StepBytes, to += kStep * kPanel) {
    for (int j = 0; j < kVectors; ++j) {
      ahead->step();
      unpack_step<128>(step, j, [&](int quad, __m512i four) TS_ALWAYS { _mm512_storeu_si512(to + quad * kQuadBytes + 64 * j, four); });
    }
  }
}

typedef void (*BlockKernel)(const uint8_t* data, const Group&, const BlockRows&, Fetch* ahead, float* sums);

BlockKernel int8_of(int64_t rows) {
  return kernel_of<BlockKernel, kRowBlock>(rows, [](auto count) { return int8_block<count()>; });
}

BlockKernel int4_of(int64_t rows) {
  return kernel_of<BlockKernel, kRowsInRegisters>(rows, [](auto count) { return int4_block<count()>; });
}

// How often int8_block may fetch ahead while it multiplies these rows: once for each kTurn quads of k of each band, if a block has several.
int64_t moments_of(int64_t columns, int64_t rows) {
  const int last = bands(static_cast<int>(rows % kRowBlock)), whole = bands(kRowBlock);
  return columns / (4 * kTurn) * (rows / kRowBlock * whole + (last > 1 ? last : 0));
}

}  // namespace

void block_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  const bool packed = kind == TS_W_INT4, single = packed && sets[0].rows <= kRowsInRegisters && sets[1].rows == 0;
  const int64_t lines = panel_bytes(kind, group.columns) / 64;
  int64_t moments = packed ? group.columns / kStep * kVectors : 0;
  for (const RowSet& set : sets) moments += single ? 0 : moments_of(group.columns, set.rows);
  Fetch ahead = {group.after, lines, moments == 0 ? 0 : (lines + moments - 1) / moments};
  if (packed && !single) unpack_group(group, &ahead, block);
  for (const RowSet& set : sets) {
    const int64_t first_pair = group.index * set.x.pair_stride;
    const int8_t* q = set.x.q + group.index * set.x.q_group_stride;
    for (int64_t r = 0; r < set.rows; r += kRowBlock, q += set.x.q_stride) {
      const int64_t count = set.rows - r < kRowBlock ? set.rows - r : kRowBlock;
      const BlockRows x = {q, q + set.x.q_stride, set.x.scales + first_pair + r, set.x.corrections + first_pair + r};
      (single ? int4_of : int8_of)(count)(packed && !single ? block : group.data, group, x, &ahead, set.sums + r * kPanel);
    }
  }
}

}  // namespace twostroke
#endif
