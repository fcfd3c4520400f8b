// ts_gather_rows: copies rows of a matrix.
#include <string.h>

#include "twostroke/abi.h"

int32_t ts_gather_rows(ts_context* context, const float* x, int64_t x_stride, int64_t x_rows, const int32_t* rows, int64_t count,
                       int64_t columns, float* out, int64_t out_stride) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (count < 0 || columns < 1 || x_rows < 0 || x_stride < columns || out_stride < columns) return TS_BAD_SHAPE;
  if (count == 0) return TS_OK;
  if (x == nullptr || rows == nullptr || out == nullptr) return TS_BAD_POINTER;
  for (int64_t r = 0; r < count; ++r)
    if (rows[r] < 0 || rows[r] >= x_rows) return TS_BAD_INDEX;
  for (int64_t r = 0; r < count; ++r)
    memcpy(out + r * out_stride, x + rows[r] * x_stride, sizeof(float) * static_cast<size_t>(columns));
  return TS_OK;
}
