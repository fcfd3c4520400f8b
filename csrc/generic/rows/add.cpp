// add: out += x.
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void add_row(const ts_add_args& a, int64_t row) {
  float* out = a.out.data + row * a.out.stride;
  const float* x = a.x.data + row * a.x.stride;
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) out[i] += x[i];
}

}  // namespace

int32_t run(ts_context* context, const ts_add_args& a) {
  if (a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  share_tasks<add_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
