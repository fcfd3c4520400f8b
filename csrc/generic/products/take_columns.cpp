// take_columns: out = x[:, order].
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void take_row(const ts_take_columns_args& a, int64_t row) {
  float* out = a.out.data + row * a.out.stride;
  const float* x = a.x.data + row * a.x.stride;
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) out[i] = x[static_cast<int32_t>(a.order.data[i])];
}

}  // namespace

int32_t run(ts_context* context, const ts_take_columns_args& a) {
  const int64_t width = width_of(a.out);
  if (a.out.rows != a.x.rows || a.order.length != width) return TS_BAD_SHAPE;
  for (int64_t i = 0; i < width; ++i)
    if (!(a.order.data[i] >= 0.0f && a.order.data[i] < static_cast<float>(width_of(a.x)))) return TS_BAD_INDEX;
  share_tasks<take_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
