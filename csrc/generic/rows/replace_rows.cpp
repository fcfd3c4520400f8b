// replace_rows: out takes the row of `given` where the row is marked, and the row of x elsewhere.
#include <string.h>

#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

void replace_row(void* arg, int64_t row, int32_t) {
  const ts_replace_rows_args& a = *static_cast<const ts_replace_rows_args*>(arg);
  const ts_value& source = a.marks.data[row] != 0 ? a.given : a.x;
  memcpy(a.out.data + row * a.out.stride, source.data + row * source.stride, sizeof(float) * static_cast<size_t>(width_of(a.out)));
}

}  // namespace

int32_t run(ts_context* context, const ts_replace_rows_args& a) {
  if (a.out.rows != a.x.rows || a.out.rows != a.given.rows || a.out.rows != a.marks.count) return TS_BAD_SHAPE;
  if (width_of(a.out) != width_of(a.x) || width_of(a.out) != width_of(a.given)) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, replace_row, const_cast<ts_replace_rows_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
