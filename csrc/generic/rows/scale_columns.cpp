// scale_columns: x *= weight, one number a column or one for all.
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void scale_columns_row(const ts_scale_columns_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const float* weight = a.weight.data;
  const int64_t width = width_of(a.out);
  if (a.weight.length == 1) {
    const float factor = weight[0];
    for (int64_t i = 0; i < width; ++i) x[i] *= factor;
  } else {
    for (int64_t i = 0; i < width; ++i) x[i] *= weight[i];
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_scale_columns_args& a) {
  if (a.weight.length != 1 && a.weight.length != width_of(a.out)) return TS_BAD_SHAPE;
  share_tasks<scale_columns_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
