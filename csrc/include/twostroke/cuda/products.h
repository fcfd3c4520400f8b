// What kernels of products share: which row of which matrix a thread makes, products of bytes, what becomes of a sum.
// Knows: arguments.h, packed panels. Must not know: which rows meet which matrices.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

// In a grid of blocks that each have one row of x and four panels: the parts of a row, this block's row, this thread's matrix row.
TS_DEVICE_INLINE int64_t parts_of(const LinearArgs& args) { return (args.panels + kProductRows - 1) / kProductRows; }
TS_DEVICE_INLINE int64_t token_of(const LinearArgs& args) { return block_index() / parts_of(args); }
TS_DEVICE_INLINE int64_t row_of(const LinearArgs& args) { return block_index() % parts_of(args) * kProductThreads + thread_index(); }

// The matrix of a bank that a row of x meets; 0 where there is one matrix.
TS_DEVICE_INLINE int64_t matrix_of(const LinearArgs& args, int64_t token) {
  return args.matrices == nullptr ? 0 : args.matrices[token];
}

// The panel of a matrix that holds one of its rows.
TS_DEVICE_INLINE const uint8_t* panel_of(const LinearArgs& args, int64_t matrix, int64_t row) {
  return args.data + (matrix * args.panels + row / kPanel) * args.panel_bytes;
}

// x_q: the four k of each row of the block.
template <int kRows>
TS_DEVICE_INLINE void dot_rows(uint32_t weights, const int8_t* x_q, int64_t stride, int32_t (&sums)[kRows]) {
  for (int r = 0; r < kRows; ++r) sums[r] = dot4(weights, *reinterpret_cast<const int32_t*>(x_q + r * stride), sums[r]);
}

template <int kRows>
TS_DEVICE_INLINE void int8_group(const uint8_t* panel, int64_t column, int64_t first, int64_t end, const int8_t* x_q, int64_t stride,
                                 int32_t (&sums)[kRows]) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + column;
  for (int64_t k = first; k < end; k += 4) dot_rows<kRows>(words[k / 4 * kPanel], x_q + k, stride, sums);
}

// element * multiplier + 128 of four elements at once: no product exceeds 225, no sum 233, so nothing carries from byte to byte.
TS_DEVICE_INLINE uint32_t unpacked(uint32_t nibbles, uint32_t multiplier) {
  return nibbles * multiplier + (128 - 8 * multiplier) * 0x01010101u;
}

template <int kRows>
TS_DEVICE_INLINE void int4_group(const uint8_t* panel, int64_t column, int64_t first, int64_t end, const int8_t* x_q, int64_t stride,
                                 int32_t (&sums)[kRows]) {
  for (int64_t k = first; k < end; k += kStep) {
    const uint8_t* step = panel + k / kStep * kInt4StepBytes;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(step + kMultiplierBytes) + column;
    for (int oct = 0; oct < 8; ++oct) {
      const uint32_t pair = step[oct / 4 * kPanel + column], multiplier = oct / 2 % 2 == 0 ? pair & 15 : pair >> 4;
      const uint32_t word = words[oct * kPanel];
      dot_rows<kRows>(unpacked(word & 0x0f0f0f0fu, multiplier), x_q + k + 8 * oct, stride, sums);
      dot_rows<kRows>(unpacked(word >> 4 & 0x0f0f0f0fu, multiplier), x_q + k + 8 * oct + 4, stride, sums);
    }
  }
}

TS_DEVICE_INLINE void finish(const LinearArgs& args, int64_t matrix, int64_t token, int64_t row, float sum) {
  const float biased = args.bias == nullptr ? sum : sum + args.bias[matrix * args.rows + row];
  float* out = args.out + token * args.out_stride + row;
  *out = args.add != 0 ? *out + biased : biased;
}

}  // namespace cuda
}  // namespace twostroke
