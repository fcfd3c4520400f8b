// clamp: x = min(max(x, -limit), limit).
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void clamp_row(const ts_clamp_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const float limit = static_cast<float>(a.limit);
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) {  // comparisons with NaN are false: it stays
    const float above = x[i] < -limit ? -limit : x[i];
    x[i] = above > limit ? limit : above;
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_clamp_args& a) {
  if (!(a.limit > 0.0)) return TS_BAD_VALUE;
  share_tasks<clamp_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
