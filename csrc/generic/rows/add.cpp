// add: out += x.
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

void add_row(void* arg, int64_t row, int32_t) {
  const ts_add_args& a = *static_cast<const ts_add_args*>(arg);
  float* out = a.out.data + row * a.out.stride;
  const float* x = a.x.data + row * a.x.stride;
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) out[i] += x[i];
}

}  // namespace

int32_t run(ts_context* context, const ts_add_args& a) {
  if (a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, add_row, const_cast<ts_add_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
