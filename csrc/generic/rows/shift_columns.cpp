// shift_columns: x -= weight, one number a column.
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

void shift_columns_row(void* arg, int64_t row, int32_t) {
  const ts_shift_columns_args& a = *static_cast<const ts_shift_columns_args*>(arg);
  float* x = a.out.data + row * a.out.stride;
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) x[i] -= a.weight.data[i];
}

}  // namespace

int32_t run(ts_context* context, const ts_shift_columns_args& a) {
  if (a.weight.length != width_of(a.out)) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, shift_columns_row, const_cast<ts_shift_columns_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
