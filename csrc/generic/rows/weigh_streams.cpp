// weigh_streams: computes weighted sums of the streams of a row. Each element is computed by itself, so that a row's bits depend on that
// row alone.
#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void weigh_row(const ts_weigh_streams_args& a, int64_t row) {
  const int64_t width = a.out.dim, read = a.x.heads;
  const float *x = a.x.data + row * a.x.stride, *weights = a.weights.data + row * a.weights.stride;
  float* out = a.out.data + row * a.out.stride;
  for (int64_t n = 0; n < a.out.heads; ++n) {
    float* to = out + n * width;
    for (int64_t i = 0; i < width; ++i) to[i] = weights[n * read] * x[i];
    for (int64_t m = 1; m < read; ++m)
      for (int64_t i = 0; i < width; ++i) to[i] += weights[n * read + m] * x[m * width + i];
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_weigh_streams_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<weigh_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
