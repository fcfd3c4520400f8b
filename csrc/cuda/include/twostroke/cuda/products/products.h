// Functions that kernels of products share: they find a row's matrix and its panels, and finish a sum.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

// The matrix of a bank by which a row of x is multiplied; 0 where there is one matrix.
TS_DEVICE_INLINE int64_t matrix_of(const LinearArgs& args, int64_t token) {
  return args.matrices == nullptr ? 0 : args.matrices[token];
}

// The panel of a matrix that holds one of its rows.
TS_DEVICE_INLINE const uint8_t* panel_of(const LinearArgs& args, int64_t matrix, int64_t row) {
  return args.data + (matrix * args.panels + row / kPanel) * args.panel_bytes;
}

// element * multiplier + 128 for four elements at once. No product exceeds 225 and no sum 233, so nothing carries from byte to byte.
TS_DEVICE_INLINE uint32_t unpacked(uint32_t nibbles, uint32_t multiplier) {
  return nibbles * multiplier + (128 - 8 * multiplier) * 0x01010101u;
}

TS_DEVICE_INLINE void finish(const LinearArgs& args, int64_t matrix, int64_t token, int64_t row, float sum) {
  const float biased = args.bias == nullptr ? sum : sum + args.bias[matrix * args.rows + row];
  float* out = args.out + token * args.out_stride + row;
  *out = args.add != 0 ? *out + biased : biased;
}

}  // namespace cuda
}  // namespace twostroke
