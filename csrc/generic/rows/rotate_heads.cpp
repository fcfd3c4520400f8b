// rotate_heads: multiplies each head's vector by Hadamard matrices.
#include "twostroke/context.h"
#include "twostroke/ops.h"
#include "twostroke/products/rotate.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kLargestBlock = 256;
constexpr int64_t kSerialElements = 1 << 14;  // one thread has computed fewer elements before other threads wake

// order must be a power of two.
void rotate_block(const float* x, int64_t order, float* to) {
  int64_t half = 1;
  if (order >= kRotatedColumns) {
    for (int64_t k = 0; k < order; k += kRotatedColumns) rotate_step(x + k, to + k);
    half = kRotatedColumns;
  } else if (to != x) {
    memcpy(to, x, static_cast<size_t>(order) * 4);
  }
  for (; half < order; half *= 2) add_apart(to, order, half, 1);
}

void rotate_head(const float* x, int64_t dim, bool inverse, float* to) {
  for (int64_t first = 0, order = kLargestBlock; first < dim; first += order) {
    while (order > dim - first) order /= 2;
    rotate_block(x + first, order, to + first);
    const float share = 1.0f / static_cast<float>(order);
    for (int64_t i = first; inverse && i < first + order; ++i) to[i] *= share;
  }
}

void rotate_row(const ts_rotate_heads_args& a, int64_t row) {
  const int64_t dim = a.out.dim;
  for (int64_t h = 0; h < a.out.heads; ++h) {
    rotate_head(a.x.data + row * a.x.stride + h * dim, dim, a.inverse != 0, a.out.data + row * a.out.stride + h * dim);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_rotate_heads_args& a) {
  if (!same_shape(a.out, a.x)) return TS_BAD_SHAPE;
  if (a.out.rows * width_of(a.out) > kSerialElements) {
    share_tasks<rotate_row>(context, a.out.rows, a);
  } else {
    for (int64_t row = 0; row < a.out.rows; ++row) rotate_row(a, row);
  }
  return TS_OK;
}

}  // namespace twostroke
