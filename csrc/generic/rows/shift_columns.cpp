// shift_columns: x -= weight, one number a column.
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void shift_columns_row(const ts_shift_columns_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) x[i] -= a.weight.data[i];
}

}  // namespace

int32_t run(ts_context* context, const ts_shift_columns_args& a) {
  if (a.weight.length != width_of(a.out)) return TS_BAD_SHAPE;
  share_tasks<shift_columns_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
