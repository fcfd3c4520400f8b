// mix_streams: adds to each stream of a row a weighted sum of other streams of that row. Each element is computed by itself, so that a
// row's bits depend on that row alone.
#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void mix_row(const ts_mix_streams_args& a, int64_t row) {
  const int64_t width = a.out.dim, made = a.out.heads, read = a.x.heads;
  const float *base = a.base.data + row * a.base.stride, *x = a.x.data + row * a.x.stride;
  const float *weights = a.weights.data + row * a.weights.stride, shift = static_cast<float>(a.shift);
  float* out = a.out.data + row * a.out.stride;
  for (int64_t j = 0; j < made; ++j) {
    float* to = out + j * width;
    for (int64_t i = 0; i < width; ++i) to[i] = base[j * width + i];
    for (int64_t m = 0; m < read; ++m) {
      const float weight = weights[j * read + m] + shift;
      for (int64_t i = 0; i < width; ++i) to[i] += weight * x[m * width + i];
    }
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_mix_streams_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<mix_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
