// selective_scan: Mamba's scan. A thread has one channel of one sequence. Each number of the state, and each sum over n, is computed in one
// order, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

template <class Column>
TS_DEVICE_INLINE void go_through(const ts_selective_scan_args& args, int64_t channel, const Span& span) {
  const int64_t channels = width_of(args.x);
  Column column(span.state + channel, width_of(args.b), channels);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float step = softplus(args.dt.data[row * args.dt.stride + channel]), x = args.x.data[row * args.x.stride + channel];
    const float inner = step * x;
    const float *b = args.b.data + row * args.b.stride, *c = args.c.data + row * args.c.stride;
    float sum = 0.0f;
    column.change([&](int64_t n, float& number) {
      number = fma(exp(step * args.decay.data[n * channels + channel]), number, b[n] * inner);
      sum = fma(c[n], number, sum);
    });
    args.out.data[row * args.out.stride + channel] = fma(args.skip.data[channel], x, sum);
  }
  column.end();
}

TS_KERNEL(selective_scan, ts_selective_scan_args) {
  const int64_t parts = parts_of(width_of(args.x)), channel = block_index() % parts * threads() + thread_index();
  if (channel >= width_of(args.x)) return;
  const Span span = span_of(args, block_index() / parts);
  if (width_of(args.b) * threads() <= kKeptNumbers) {
    go_through<KeptColumn>(args, channel, span);
  } else {
    go_through<LongColumn>(args, channel, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
