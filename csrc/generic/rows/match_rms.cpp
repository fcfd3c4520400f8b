// match_rms: scales rows to the root mean square of other rows.
#include <math.h>

#include "twostroke/checks.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

float mean_square(const float* x, int64_t width) {
  Vec squares = zero();
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vec part = load_part(x + i, width - i < kLanes ? width - i : kLanes, 0.0f);
    squares = fma(part, part, squares);
  }
  return reduce_add(squares) / static_cast<float>(width);
}

void match_row(const ts_match_rms_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const int64_t width = width_of(a.out);
  const float own = mean_square(x, width), least = static_cast<float>(a.least);
  const float factor = sqrtf(mean_square(a.like.data + row * a.like.stride, width)) / sqrtf(own < least ? least : own);
  for (int64_t i = 0; i < width; ++i) x[i] *= factor;
}

}  // namespace

int32_t run(ts_context* context, const ts_match_rms_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<match_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
