// scale: x *= factor.
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void scale_row(const ts_scale_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const float factor = static_cast<float>(a.factor);
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) x[i] *= factor;
}

}  // namespace

int32_t run(ts_context* context, const ts_scale_args& a) {
  share_tasks<scale_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
