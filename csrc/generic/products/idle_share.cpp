// idle_share: adds the weights of a row's experts that compute nothing, in the order of the row's routes.
#include "twostroke/checks.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void share_of_row(const ts_idle_share_args& a, int64_t row) {
  const int64_t chosen = width_of(a.routes) / 2;
  const float *weights = a.routes.data + row * a.routes.stride, *numbers = weights + chosen;
  float sum = 0.0f;
  for (int64_t i = 0; i < chosen; ++i) {
    if (numbers[i] >= static_cast<float>(a.experts)) sum += weights[i];
  }
  a.out.data[row * a.out.stride] = sum;
}

}  // namespace

int32_t run(ts_context* context, const ts_idle_share_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<share_of_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
