// Many rows of ts_linear for AVX-512 with VNNI, where there are no matrix registers: a block of up to 16 rows by 16 columns.
// One register of weights meets all rows of a block before the next is loaded, so that memory is read at an even pace behind the
// products, and int4 is unpacked in registers on ports that the products leave idle. Measured, 256 columns of k by 64 from the
// first-level cache: products at 98% of their peak, with unpacking 120 ns more a block of rows, of 71 ns a row.
// Knows: packed panels, blocks of rows, 512-bit registers. Must not know: threads, bias.
#if defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_AMX)
#include "twostroke/stream.h"
#include "twostroke/vnni.h"

namespace twostroke {
namespace {

// Rows of int4 from which on a group is unpacked into memory once, and not in registers for each block.
constexpr int64_t kUnpackedRows = 2 * kRowBlock + 1;

constexpr int kTurn = 4;  // quads of k between two moments to fetch ahead

// What one block of rows has of one group.
struct BlockRows {
  const int8_t* q;  // (quads, rows, 4)
  const float* scales;
  const int32_t* corrections;
};

// As many vectors of columns at once as the registers hold sums for. The whole width of a panel reads memory front to back.
constexpr int across(int rows) { return rows <= 6 ? kVectors : rows <= 12 ? 2 : 1; }

template <int kRows, int kAcross>
TS_INLINE void begin(const int32_t* corrections, __m512i (&integers)[kRows][kAcross]) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) integers[r][j] = _mm512_set1_epi32(corrections[r]);
  }
}

template <int kRows, int kAcross>
TS_INLINE void multiply(const __m512i (&weights)[kAcross], const int8_t* quads, __m512i (&integers)[kRows][kAcross]) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512i quad = broadcast_quad(quads + 4 * r);
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], weights[j], quad);
  }
}

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
        multiply(weights, q + i * 4 * kRows, integers);
      }
    }
    fold(integers, x.scales, group.scales + 32 * j, sums + 16 * j);
  }
}

template <int kRows>
void int4_block(const uint8_t* data, const Group& group, const BlockRows& x, Fetch* ahead, float* sums) {
  for (int j = 0; j < kVectors; ++j) {
    __m512i integers[kRows][1];
    begin(x.corrections, integers);
    const uint8_t* step = data;
    const int8_t* q = x.q;
    for (int64_t k = 0; k < group.columns; k += kStep, step += kInt4StepBytes, q += kStep * kRows) {
      ahead->step();
      unpack_step<128>(step, j, [&](int quad, __m512i four) __attribute__((always_inline)) {
        multiply<kRows, 1>({four}, q + quad * 4 * kRows, integers);
      });
    }
    fold(integers, x.scales, group.scales + 32 * j, sums + 16 * j);
  }
}

typedef void (*BlockKernel)(const uint8_t* data, const Group&, const BlockRows&, Fetch* ahead, float* sums);

constexpr BlockKernel kInt8[kRowBlock] = {int8_block<1>,  int8_block<2>,  int8_block<3>,  int8_block<4>,
                                          int8_block<5>,  int8_block<6>,  int8_block<7>,  int8_block<8>,
                                          int8_block<9>,  int8_block<10>, int8_block<11>, int8_block<12>,
                                          int8_block<13>, int8_block<14>, int8_block<15>, int8_block<16>};
constexpr BlockKernel kInt4[kRowBlock] = {int4_block<1>,  int4_block<2>,  int4_block<3>,  int4_block<4>,
                                          int4_block<5>,  int4_block<6>,  int4_block<7>,  int4_block<8>,
                                          int4_block<9>,  int4_block<10>, int4_block<11>, int4_block<12>,
                                          int4_block<13>, int4_block<14>, int4_block<15>, int4_block<16>};

// Moments to fetch ahead while a group meets these rows: one each kTurn quads of k, of int4 each step.
int64_t moments_of(int32_t kind, int64_t columns, int64_t rows) {
  const int64_t last = rows % kRowBlock;
  if (kind == TS_W_INT4) return columns / kStep * kVectors * (rows / kRowBlock + (last > 0 ? 1 : 0));
  const int wide = across(static_cast<int>(last));
  return columns / (4 * kTurn) * (rows / kRowBlock * kVectors + (last == 0 || wide == kVectors ? 0 : kVectors / wide));
}

void unpack(const uint8_t* packed, int64_t columns, Fetch* ahead, uint8_t* bytes) {
  for (int64_t k = 0; k < columns; k += kStep, packed += kInt4StepBytes, bytes += kStep * kPanel) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      ahead->step();
      unpack_step<128>(packed, j, [&](int quad, __m512i four) { _mm512_storeu_si512(bytes + quad * kQuadBytes + 64 * j, four); });
    }
  }
}

}  // namespace

void blocks_begin() {}
void blocks_end() {}

void block_group(int32_t kind, const Group& group, const TileRows& x, int64_t rows, uint8_t* block, float* sums) {
  const bool unpacked = kind == TS_W_INT4 && rows >= kUnpackedRows;
  const int64_t lines = panel_bytes(kind, group.columns) / 64, moments = moments_of(unpacked ? TS_W_INT8 : kind, group.columns, rows);
  Fetch ahead = {group.after, lines, moments == 0 ? 0 : (lines + moments - 1) / moments};
  const uint8_t* data = group.data;
  const BlockKernel* kernels = kind == TS_W_INT8 ? kInt8 : kInt4;
  if (unpacked) {
    unpack(group.data, group.columns, &ahead, block);
    data = block;
    kernels = kInt8;
  }
  const int64_t first_pair = group.index * x.pair_stride;
  const int8_t* q = x.q + group.index * x.q_group_stride;
  for (int64_t r = 0; r < rows; r += kRowBlock, q += x.q_stride, sums += kRowBlock * kPanel) {
    const int64_t count = rows - r < kRowBlock ? rows - r : kRowBlock;
    kernels[count - 1](data, group, {q, x.scales + first_pair + r, x.corrections + first_pair + r}, &ahead, sums);
  }
}

}  // namespace twostroke
#endif
