// layer_norm: the layer norm of each row.
#include "twostroke/checks.h"
#include "twostroke/rows/layer_norm.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kRowsPerTask = 8;

void layer_norm_task(const ts_layer_norm_args& a, int64_t index) {
  const int64_t first = index * kRowsPerTask;
  const int64_t last = first + kRowsPerTask < a.x.rows ? first + kRowsPerTask : a.x.rows;
  for (int64_t row = first; row < last; ++row)
    layer_norm_vector(a.x.data + row * a.x.stride, a.weight.data, a.bias.data, static_cast<float>(a.eps), width_of(a.x),
                      a.out.data + row * a.out.stride);
}

}  // namespace

int32_t run(ts_context* context, const ts_layer_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<layer_norm_task>(context, (a.x.rows + kRowsPerTask - 1) / kRowsPerTask, a);
  return TS_OK;
}

}  // namespace twostroke
