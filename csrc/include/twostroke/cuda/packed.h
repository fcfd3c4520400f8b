// Sizes of packed weights as kernels and their host need them; the law is src/twostroke/ops/operands.py.
// Knows: layouts. Must not know: kernels.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {
namespace cuda {

constexpr int64_t kPanel = TS_PANEL_ROWS;
constexpr int64_t kStep = 64;       // columns that whole kinds are padded to
constexpr int64_t kSubgroup = 16;   // columns of int4 that share a multiplier
constexpr int64_t kMultiplierBytes = kStep / kSubgroup / 2 * kPanel;  // at the beginning of a step of int4
constexpr int64_t kInt4StepBytes = kMultiplierBytes + kStep / 2 * kPanel;

constexpr bool is_whole(int32_t kind) { return kind == TS_W_INT8 || kind == TS_W_INT4; }

constexpr int64_t padded_columns(int32_t kind, int64_t columns) {
  const int64_t multiple = kind == TS_W_F32 ? 1 : kind == TS_W_BF16 ? 2 : kStep;
  return (columns + multiple - 1) / multiple * multiple;
}

constexpr int64_t panel_bytes(int32_t kind, int64_t padded) {
  if (kind == TS_W_INT4) return padded / kStep * kInt4StepBytes;
  return kPanel * padded * (kind == TS_W_F32 ? 4 : kind == TS_W_BF16 ? 2 : 1);
}

}  // namespace cuda
}  // namespace twostroke
