// head_linear: multiplies each head's vector by a matrix of that head, like the rows of any product.
#include "twostroke/context.h"
#include "twostroke/products/linear.h"
#include "twostroke/ops.h"

namespace twostroke {

int32_t run(ts_context* context, const ts_head_linear_args& a) {
  const int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  const int64_t heads = a.weight->experts;
  if (heads < 1 || a.x.heads != heads || a.out.heads != heads || a.x.rows != a.out.rows) return TS_BAD_SHAPE;
  if (a.x.dim != a.weight->columns || a.out.dim != a.weight->rows) return TS_BAD_SHAPE;
  for (int64_t head = 0; head < heads; ++head) {
    const ts_weight weight = matrix_of(*a.weight, head);
    const int32_t done = ts_linear(context, &weight, a.x.data + head * a.x.dim, a.x.stride, a.x.rows, a.out.data + head * a.out.dim, a.out.stride);
    if (done != TS_OK) return done;
  }
  return TS_OK;
}

}  // namespace twostroke
