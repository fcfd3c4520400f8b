// ssd_scan: Mamba-2's scan, a block a head of one sequence, a thread a column of its state. Each number of the state, and each sum over n,
// is made in one order, so bits do not depend on how a sequence is cut into steps.
// Knows: states.h. Must not know: models.
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(ssd_scan, SsdArgs) {
  const int64_t head = block_index() % args.heads, group = head / (args.heads / args.groups), width = args.width, numbers = args.numbers;
  const Span span = span_of(args.state, block_index() / args.heads);
  float* state = span.state + head * numbers * width;
  for (int64_t column = thread_index(); column < width; column += threads()) {
    for (int64_t row = span.first; row < span.first + span.count; ++row) {
      const float asked = softplus(args.dt[row * args.dt_stride + head] + args.dt_bias[head]);
      const float step = smaller(args.dt_most, larger(args.dt_least, asked));  // NaN stays: it is the second operand
      const float left = exp(step * args.decay[head]), x = args.x[row * args.x_stride + head * width + column], inner = x * step;
      const float *b = args.b + row * args.b_stride + group * numbers, *c = args.c + row * args.c_stride + group * numbers;
      float sum = 0.0f;
      for (int64_t n = 0; n < numbers; ++n) {
        float* at = state + n * width + column;
        const float h = fma(*at, left, b[n] * inner);
        sum = fma(c[n], h, sum);
        *at = h;
      }
      args.out[row * args.out_stride + head * width + column] = fma(args.skip[head], x, sum);
    }
  }
}

}  // namespace cuda
}  // namespace twostroke
