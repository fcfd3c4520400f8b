// scale: x *= factor.
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

void scale_row(void* arg, int64_t row, int32_t) {
  const ts_scale_args& a = *static_cast<const ts_scale_args*>(arg);
  float* x = a.out.data + row * a.out.stride;
  const float factor = static_cast<float>(a.factor);
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) x[i] *= factor;
}

}  // namespace

int32_t run(ts_context* context, const ts_scale_args& a) {
  ts_parallel(context, a.out.rows, scale_row, const_cast<ts_scale_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
