// low_rank: what adapters add to a product. Rows beside each other with the same adapter are multiplied together.
// Knows: ts_linear and ts_linear_add, how banks of packed weights lie. Must not know: which adapters there are.
#include <string.h>

#include "twostroke/context.h"
#include "twostroke/linear.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

int32_t check(const ts_low_rank_args& a) {
  int32_t status = check_weight(a.down);
  if (status == TS_OK) status = check_weight(a.up);
  if (status != TS_OK) return status;
  const int64_t tokens = a.out.rows;
  if (a.down->experts < 1 || a.up->experts != a.down->experts || a.up->columns != a.down->rows) return TS_BAD_SHAPE;
  if (a.down->columns != width_of(a.x) || a.up->rows != width_of(a.out) || width_of(a.middle) != a.down->rows) return TS_BAD_SHAPE;
  if (!same_shape(a.out, a.product) || a.x.rows != tokens || a.middle.rows != tokens || a.adapters.count != tokens) return TS_BAD_SHAPE;
  for (int64_t row = 0; row < tokens; ++row) {
    if (a.adapters.data[row] < -1 || a.adapters.data[row] >= a.down->experts) return TS_BAD_INDEX;
  }
  return TS_OK;
}

void copy_task(void* arg, int64_t row, int32_t) {
  const ts_low_rank_args& a = *static_cast<const ts_low_rank_args*>(arg);
  memcpy(a.out.data + row * a.out.stride, a.product.data + row * a.product.stride, static_cast<size_t>(width_of(a.out)) * 4);
}

}  // namespace

int32_t run(ts_context* context, const ts_low_rank_args& a) {
  int32_t status = check(a);
  if (status != TS_OK) return status;
  ts_parallel(context, a.out.rows, copy_task, const_cast<ts_low_rank_args*>(&a));
  for (int64_t first = 0, end = 0; first < a.out.rows; first = end) {
    const int32_t adapter = a.adapters.data[first];
    while (end < a.out.rows && a.adapters.data[end] == adapter) ++end;
    if (adapter < 0) continue;
    const ts_weight down = matrix_of(*a.down, adapter), up = matrix_of(*a.up, adapter);
    float* middle = a.middle.data + first * a.middle.stride;
    status = ts_linear(context, &down, a.x.data + first * a.x.stride, a.x.stride, end - first, middle, a.middle.stride);
    if (status == TS_OK) {
      status = ts_linear_add(context, &up, middle, a.middle.stride, end - first, a.out.data + first * a.out.stride, a.out.stride);
    }
    if (status != TS_OK) return status;
  }
  return TS_OK;
}

}  // namespace twostroke
