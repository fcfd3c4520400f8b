// The sequence to which a row of a step belongs, and the number of positions that the row sees.
#pragma once
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

struct RowPlace {
  int64_t sequence, positions;  // positions: the row's own and those before it
};

TS_DEVICE_INLINE RowPlace place_of_row(const int32_t* row_starts, const int32_t* context_tokens, int64_t sequences, int64_t row) {
  int64_t low = 0, high = sequences;  // row_starts[low] <= row < row_starts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (row_starts[middle] <= row) low = middle;
    else high = middle;
  }
  return {low, context_tokens[low] - (row_starts[low + 1] - row) + 1};
}

}  // namespace cuda
}  // namespace twostroke
