// replace_rows: where the row is marked, out gets the row of `given`, or its sum with that of x. Elsewhere it gets the row of x.
#include <string.h>

#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void replace_row(const ts_replace_rows_args& a, int64_t row) {
  float* out = a.out.data + row * a.out.stride;
  const float *x = a.x.data + row * a.x.stride, *given = a.given.data + row * a.given.stride;
  const int64_t width = width_of(a.out);
  if (a.marks.data[row] != 0 && a.added != 0) {
    for (int64_t i = 0; i < width; ++i) out[i] = x[i] + given[i];
    return;
  }
  const float* source = a.marks.data[row] != 0 ? given : x;
  if (source != out) memcpy(out, source, sizeof(float) * static_cast<size_t>(width));
}

}  // namespace

int32_t run(ts_context* context, const ts_replace_rows_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<replace_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
