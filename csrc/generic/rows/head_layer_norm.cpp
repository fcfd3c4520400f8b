// head_layer_norm: the layer norm of each head, in place.
#include "twostroke/checks.h"
#include "twostroke/rows/layer_norm.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kRowsPerTask = 8;

void head_layer_norm_task(const ts_head_layer_norm_args& a, int64_t index) {
  const int64_t dim = a.out.dim, step = a.weight.length == dim ? 0 : dim;  // there is one vector of weights for all heads, or one for each
  const int64_t first = index * kRowsPerTask;
  const int64_t last = first + kRowsPerTask < a.out.rows ? first + kRowsPerTask : a.out.rows;
  for (int64_t row = first; row < last; ++row) {
    for (int64_t head = 0; head < a.out.heads; ++head) {
      float* x = a.out.data + row * a.out.stride + head * dim;
      const float* bias = a.bias.data == nullptr ? nullptr : a.bias.data + head * step;
      layer_norm_vector(x, a.weight.data + head * step, bias, static_cast<float>(a.eps), dim, x);
    }
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_head_layer_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<head_layer_norm_task>(context, (a.out.rows + kRowsPerTask - 1) / kRowsPerTask, a);
  return TS_OK;
}

}  // namespace twostroke
