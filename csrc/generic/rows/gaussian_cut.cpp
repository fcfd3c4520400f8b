// gaussian_cut: subtracts mean + factor * deviation of its row from each element. Results below 0 become 0.
#include <math.h>

#include "twostroke/ops.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void cut_row(const ts_gaussian_cut_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const int64_t width = width_of(a.out);
  Vec sum = zero(), squares = zero();
  for (int64_t i = 0; i < width; i += kLanes) sum = sum + load_part(x + i, width - i < kLanes ? width - i : kLanes, 0.0f);
  const float mean = reduce_add(sum) / static_cast<float>(width);
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vec apart = load_part(x + i, width - i < kLanes ? width - i : kLanes, mean) - set1(mean);
    squares = fma(apart, apart, squares);
  }
  const float cut = mean + static_cast<float>(a.factor) * sqrtf(reduce_add(squares) / static_cast<float>(width));
  for (int64_t i = 0; i < width; ++i) x[i] = x[i] < cut ? 0.0f : x[i] - cut;  // NaN stays NaN
}

}  // namespace

int32_t run(ts_context* context, const ts_gaussian_cut_args& a) {
  if (width_of(a.out) < 1) return TS_BAD_SHAPE;
  share_tasks<cut_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
