// selective_scan: Mamba's scan, a thread a channel of one sequence. Each number of the state, and each sum over n, is made in one order, so
// bits do not depend on how a sequence is cut into steps.
// Knows: states.h. Must not know: models.
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(selective_scan, SelectiveArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), channels = args.channels;
  if (channel >= channels) return;
  const Span span = span_of(args.state, block_index() / args.parts);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float step = softplus(args.dt[row * args.dt_stride + channel]), x = args.x[row * args.x_stride + channel];
    const float inner = step * x;
    const float *b = args.b + row * args.b_stride, *c = args.c + row * args.c_stride;
    float sum = 0.0f;
    for (int64_t n = 0; n < args.numbers; ++n) {
      float* at = span.state + n * channels + channel;
      const float h = fma(exp(step * args.decay[n * channels + channel]), *at, b[n] * inner);
      sum = fma(c[n], h, sum);
      *at = h;
    }
    args.out[row * args.out_stride + channel] = fma(args.skip[channel], x, sum);
  }
}

}  // namespace cuda
}  // namespace twostroke
