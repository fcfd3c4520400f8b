// Inside ts_linear: the register tile that each instruction-set level supplies, and what it multiplies.
// Knows: packed panels, quantized rows. Must not know: threads, bias, how rows and panels are shared out.
#pragma once
#include <stdint.h>
#include <string.h>

#include "twostroke/abi.h"

// An array of vector registers stays in registers only where every loop over it is unrolled and every use inlined.
#define TS_UNROLL _Pragma("clang loop unroll(full)")
#define TS_INLINE __attribute__((always_inline)) inline

namespace twostroke {

constexpr int64_t kPanel = TS_PANEL_ROWS;

#if defined(TS_LEVEL_AVX512)
constexpr int64_t kTileRows = 6;  // 6 x 4 accumulators, 4 weights, 1 activation: 29 of 32 registers
#else
constexpr int64_t kTileRows = 4;
#endif

// 64 output columns of a packed matrix. columns: padded for the integer kinds, real for the float kinds.
struct Panel {
  const uint8_t* data;
  const uint8_t* scales;  // (columns / group, 64) bf16 bits
  int64_t columns, group;
};

// The activation rows of one tile, first row first. Strides are in elements.
struct TileRows {
  const float* x;              // float kinds: (rows, columns), x_stride apart
  int64_t x_stride;
  const int8_t* q;             // integer kinds: (rows, padded columns) quantized, q_stride apart
  int64_t q_stride;
  const float* scales;         // (rows, groups)
  const int32_t* corrections;  // (rows, groups): -offset * (sum of q in the group); undoes the weights' unsigned offset
  int64_t groups;
};

// sums (rows, 64) = the products, without bias; `rows` is fixed by the kernel. A row's arithmetic is the same in every kernel.
typedef void (*TileKernel)(const Panel&, const TileRows&, float* sums);

// The kernel for a ts_weight_kind and 1..kTileRows rows.
TileKernel tile_kernel(int32_t kind, int64_t rows);

// What is added to a signed weight when it is stored unsigned.
inline int32_t weight_offset(int32_t kind) { return kind == TS_W_INT8 ? 128 : 8; }

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

inline int64_t padded_columns(int32_t kind, int64_t columns, int64_t group) {
  if (kind == TS_W_F32) return columns;
  return round_up(columns, kind == TS_W_BF16 ? 2 : group);
}

inline int64_t element_bits(int32_t kind) {
  return kind == TS_W_F32 ? 32 : kind == TS_W_BF16 ? 16 : kind == TS_W_INT8 ? 8 : 4;
}

// Bytes of one panel of `padded` columns.
inline int64_t panel_bytes(int32_t kind, int64_t padded) { return kPanel * padded * element_bits(kind) / 8; }

inline bool is_integer_kind(int32_t kind) { return kind == TS_W_INT8 || kind == TS_W_INT4; }

inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// TS_OK, or what is wrong with a packed weight.
int32_t check_weight(const ts_weight* w);

// One row to int8, as ops/linear.py quantize_rows; q (round_up(columns, group)), scales and corrections (groups).
void quantize_row(const float* x, int64_t columns, int64_t group, int32_t offset, int8_t* q, float* scales,
                  int32_t* corrections);

}  // namespace twostroke
