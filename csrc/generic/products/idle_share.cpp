// idle_share: the weights of a row's experts that compute nothing, added up in the order of its routes.
#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

void share_of_row(void* arg, int64_t row, int32_t) {
  const ts_idle_share_args& a = *static_cast<const ts_idle_share_args*>(arg);
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
  ts_parallel(context, a.out.rows, share_of_row, const_cast<ts_idle_share_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
