// join_rows: each group of neighbouring rows becomes one row.
#include <string.h>

#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void join_group(const ts_join_rows_args& a, int64_t row) {
  const int64_t width = width_of(a.x), group = width_of(a.out) / width, first = a.rows.data[row] * group;
  float* out = a.out.data + row * a.out.stride;
  for (int64_t i = 0; i < group; ++i)
    memcpy(out + i * width, a.x.data + (first + i) * a.x.stride, sizeof(float) * static_cast<size_t>(width));
}

}  // namespace

int32_t run(ts_context* context, const ts_join_rows_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<join_group>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
