// The inner parts of ts_linear: the register tile that each instruction-set level supplies, and its operands.
#pragma once
#include <stdint.h>
#include <string.h>

#include "twostroke/abi.h"
#include "twostroke/level.h"
#include "twostroke/products/packed.h"
#include "twostroke/stream.h"
#include "twostroke/products/unrolled.h"

namespace twostroke {

// The rows of a register tile, and the numbers of rows for each way of multiplying: see level.h.
constexpr int64_t kTileRows = kLevel.tile_rows, kInt4Rows = kLevel.int4_rows, kStreamRows = kLevel.stream_rows;
constexpr int64_t kBlockedRows = kLevel.blocked_rows, kReadRows = kLevel.read_rows;
constexpr int64_t read_on_rows(int32_t kind) { return kind == TS_W_INT8 ? kLevel.int8_read_on : kLevel.int4_read_on; }

constexpr int64_t kQuadBytes = 4 * kPanel;  // bytes of four k of a panel

// 64 output columns of a packed matrix. columns: padded for the integer kinds, not padded for the float kinds.
struct Panel {
  const uint8_t* data;
  const uint8_t* scales;  // (groups, 64) bf16 bits
  int64_t columns, group;
};

// The place of the first row of a panel's results.
struct Place {
  float* at;
  int64_t stride;
};

// The columns of one panel that share a scale.
struct Group {
  const uint8_t* data;    // packed
  const uint8_t* scales;  // (64,) bf16 bits
  const uint8_t* after;  // the bytes that are read next, and are fetched ahead
  int64_t index, first, columns;
  Place out = {nullptr, 0};  // for the last group: the place of the results of its rows
};

// The activation rows of one tile, first row first. Strides count elements.
struct TileRows {
  const float* x;                  // float kinds: (rows, columns), x_stride apart
  int64_t x_stride;
  const int8_t* q;                 // integer kinds: (rows, padded columns) quantized, q_stride apart
  int64_t q_stride;
  int64_t q_group_stride;  // in blocks: the distance from one group to the next
  const float* scales;  // (groups of activations, rows), pair_stride apart, because those of a group are used together
  const int32_t* corrections;  // the same shape: -128 * (sum of q in the group), which undoes the offset of int8 weights
  int64_t pair_stride;
  const int32_t* sub_corrections;  // (rows, subgroups): -8 * (sum of q in 16 columns), which undoes the offset of int4 elements
  int64_t subgroups;
};

// Some rows by which a group of weights is multiplied, and the place of their sums (rows, 64).
struct RowSet {
  TileRows x;
  int64_t rows;
  float* sums;
};
// The rows of a task, and the remainders of its first rows (linear_first.cpp), which are none for most tasks. One unpacking serves both.
typedef RowSet RowSets[2];

// The same tile, `rows` rows later, where rows are not in blocks.
TS_INLINE TileRows rows_after(TileRows x, int64_t rows) {
  x.q += rows * x.q_stride;
  x.scales += rows;
  x.corrections += rows;
  x.sub_corrections += rows * x.subgroups;
  return x;
}

// Fetches line `line` of the results of rows [first, end), which are written soon. A store that waits for its line would hold up the next.
template <int kFirst, int kEnd>
TS_INLINE void fetch_results(const Place& out, int64_t line) {
  TS_UNROLL
  for (int r = kFirst; r < kEnd; ++r) __builtin_prefetch(out.at + r * out.stride + 16 * line, 1, 3);
}

// Fetches the rows of the next tile. They are in the second-level cache or farther away, and a tile takes longer than a CPU looks ahead.
inline void fetch_rows(const TileRows& x, const Group& group, int64_t rows, const float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const int8_t* q = x.q + r * x.q_stride + group.first;
    for (int64_t k = 0; k < group.columns; k += 64) __builtin_prefetch(q + k, 0, 3);
    for (int64_t c = 0; c < kPanel; c += 16) __builtin_prefetch(sums + r * kPanel + c, 0, 3);
  }
}

// Sets sums (rows, 64) to the products, without bias. The kernel fixes `rows`. A row's arithmetic is the same in every kernel.
typedef void (*TileKernel)(const Panel&, const TileRows&, float* sums);

// Adds one group to sums (rows, 64). It first adds integers exactly, then sums = fma(float(integers), x_scale * w_scale, sums). ahead:
// fetches the bytes that the next group reads.
typedef void (*GroupKernel)(const uint8_t* data, const Group&, const TileRows&, FetchByTiles& ahead, float* sums);

// The kernel for a float ts_weight_kind and 1..kTileRows rows.
TileKernel float_kernel(int32_t kind, int64_t rows);

// Computes the same for kTileRows to kFloatRows rows, at levels that have it. It fetches the bytes from `after` on meanwhile.
constexpr int64_t kFloatRows = kLevel.float_rows;
void float_tiles(int32_t kind, const Panel&, const uint8_t* after, const TileRows&, int64_t rows, float* sums);

// The kernels below are defined at the levels whose ways need them (linear_way.cpp).

// data: (columns / 4, 64, 4) bytes, weight + 128; for 1..kTileRows rows. It is not used where rows are few or in blocks.
GroupKernel int8_kernel(int64_t rows);

// data: packed int4; for 1..kTileRows rows. More than kInt4Rows rows in all share one unpacking instead.
GroupKernel int4_kernel(int64_t rows);

// The kernel for an integer kind and a whole panel, whose memory it reads from front to back. It is for up to kStreamRows rows, and for
// more, up to read_on_rows(kind), where x.q is a block. in_turn: whether this CPU reads several stretches of memory in turn, which decides
// how far ahead it fetches.
TileKernel few_rows_kernel(int32_t kind, int64_t rows, bool in_turn);
TileKernel int4_few_rows(int64_t rows);
TileKernel several_rows_kernel(int32_t kind, int64_t rows);

// Multiplies few rows by one group of streams(kind) panels, with the same columns. The sums of groups[s] are at sums + s * stream_floats.
typedef void (*StreamKernel)(const Group* groups, const TileRows&, float* sums, int64_t stream_floats);
constexpr int64_t kMostStreams = 4;
// The panels by which few rows are multiplied in turn. Measured: int8 is 1.06 times as fast with four. int4, whose turns are longer, is so
// with two.
constexpr int64_t streams(int32_t kind) { return kind == TS_W_INT8 ? 4 : kind == TS_W_INT4 ? 2 : 1; }
StreamKernel stream_kernel(int32_t kind, int64_t rows);  // for an integer kind and 1..kStreamRows rows
StreamKernel int4_streams(int64_t rows);

// Unpacks int4 to (columns / 4, 64, 4) bytes, element * multiplier + 128.
void unpack_int4(const uint8_t* packed, int64_t columns, uint8_t* bytes);

// For levels with int4_codes: unpacks int4 to (columns / 4, 64, 4) bytes, element + 8, and then (columns / 16, 64) multipliers of 32 bits.
// The other function is the kernel for this form. A block has room for the codes and the multipliers of kMaxGroup columns.
constexpr int64_t kBlockBytes = kPanel * kMaxGroup + (kLevel.int4_codes ? kMaxGroup / kSubgroup * kPanel * 4 : 0);
void unpack_int4_codes(const uint8_t* packed, int64_t columns, uint8_t* block);
GroupKernel int4_codes_kernel(int64_t rows);

constexpr int64_t kRowBlock = 16;
// A thread calls the first before its block_group calls, and the second after them. Matrix registers need it.
void configure_tiles();
void release_tiles();
inline void blocks_begin() {
  if constexpr (kLevel.matrix_registers) configure_tiles();
}
inline void blocks_end() {
  if constexpr (kLevel.matrix_registers) release_tiles();
}
// Multiplies rows in blocks. x.q is in blocks of 16 rows, x.q_stride is the distance between the blocks of one group, and one group of all
// rows lies in one piece. For matrix registers (AMX), a block is (steps of the group, 16, 64); else it is (quads of the group, the block's
// rows, 4). block: room for 64 * columns bytes. The bits are those of the kernels above.
void block_group(int32_t kind, const Group&, const RowSets&, uint8_t* block);

inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// The place of quantized rows. Groups are group_stride apart. Each group has a scale and a correction, pair_stride apart. sub_corrections:
// (padded columns / 16), or NULL.
struct QuantizedRow {
  int8_t* q;
  int64_t group_stride;
  float* scales;
  int32_t* corrections;
  int64_t pair_stride;
  int32_t* sub_corrections;
};

// A group whose largest magnitude is outside these bounds counts as zeros. Below, 127 / amax would overflow; above, amax is infinite or
// NaN.
constexpr float kLeastMagnitude = 0x1p-120f, kMostMagnitude = 0x1.fffffep127f;

// How rows of activations must be rounded for a weight. group: the columns that share a scale, which are kFineColumns or whole steps.
// rotated: the value of ts_weight.
struct Rounding8 {
  int64_t group, rotated;
};
inline Rounding8 rounding_for(const ts_weight& w) { return {activation_columns(w), w.rotated}; }

// Rounds one row to int8 as quantize_rows in ops/products/linear.py does. Zeros and scales of 0 fill it up to whole steps.
void quantize_row(const float* x, int64_t columns, Rounding8 how, QuantizedRow to);
// Rounds one group of at most kMaxGroup columns into q. Returns the largest magnitude, which is 127 times the scale.
float round_group(const float* x, int64_t columns, int8_t* q);
// Computes floats that round to these codes and this largest magnitude, and so to the same scale.
void unround_group(const int8_t* q, float amax, int64_t columns, float* x);
// Rounds one group of up to 16 rows, x_stride apart, into the block that begins at `to`. rotated: the value of ts_weight.
void quantize_block(const float* x, int64_t x_stride, int64_t rows, int64_t columns, int64_t rotated, QuantizedRow to);

}  // namespace twostroke
