// selective_scan: Mamba's scan. A thread has one channel of one sequence. Each number of the state, and each sum over n, is computed in one
// order, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

template <class Column>
TS_DEVICE_INLINE void go_through(const SelectiveArgs& args, int64_t channel, const Span& span) {
  const int64_t channels = args.channels;
  Column column(span.state + channel, args.numbers, channels);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float step = softplus(args.dt[row * args.dt_stride + channel]), x = args.x[row * args.x_stride + channel];
    const float inner = step * x;
    const float *b = args.b + row * args.b_stride, *c = args.c + row * args.c_stride;
    float sum = 0.0f;
    column.change([&](int64_t n, float& number) {
      number = fma(exp(step * args.decay[n * channels + channel]), number, b[n] * inner);
      sum = fma(c[n], number, sum);
    });
    args.out[row * args.out_stride + channel] = fma(args.skip[channel], x, sum);
  }
  column.end();
}

TS_KERNEL(selective_scan, SelectiveArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index();
  if (channel >= args.channels) return;
  const Span span = span_of(args.state, block_index() / args.parts);
  if (args.numbers * threads() <= kKeptNumbers) {
    go_through<KeptColumn>(args, channel, span);
  } else {
    go_through<LongColumn>(args, channel, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
