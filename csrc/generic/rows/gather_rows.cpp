// gather_rows: copies rows of a matrix.
#include <string.h>

#include "twostroke/checks.h"

namespace twostroke {

int32_t run(ts_context*, const ts_gather_rows_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  for (int64_t r = 0; r < a.rows.count; ++r)
    memcpy(a.out.data + r * a.out.stride, a.x.data + a.rows.data[r] * a.x.stride, sizeof(float) * static_cast<size_t>(width_of(a.out)));
  return TS_OK;
}

}  // namespace twostroke
