// selective_scan: Mamba's scan, a thread a channel of one sequence. Each number of the state, and each sum over n, is made in one order, so
// bits do not depend on how a sequence is cut into steps.
// Knows: states.h. Must not know: models.
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

// Most models have so many numbers a channel: a thread then keeps them in registers from its first token to its last.
constexpr int32_t kScanNumbers = 16;

// h = the state's next number, and the sum with it.
TS_DEVICE_INLINE float next_number(float h, float step, float decay, float b, float inner) { return fma(exp(step * decay), h, b * inner); }

TS_DEVICE_INLINE void scan_held(const SelectiveArgs& args, const Span& span, int64_t channel) {
  float h[kScanNumbers], decay[kScanNumbers];
  TS_EVERY_LANE
  for (int32_t n = 0; n < kScanNumbers; ++n) {
    h[n] = span.state[n * args.channels + channel];
    decay[n] = args.decay[n * args.channels + channel];
  }
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float step = softplus(args.dt[row * args.dt_stride + channel]), x = args.x[row * args.x_stride + channel];
    const float inner = step * x;
    const float *b = args.b + row * args.b_stride, *c = args.c + row * args.c_stride;
    float sum = 0.0f;
    TS_EVERY_LANE
    for (int32_t n = 0; n < kScanNumbers; ++n) {
      h[n] = next_number(h[n], step, decay[n], b[n], inner);
      sum = fma(c[n], h[n], sum);
    }
    args.out[row * args.out_stride + channel] = fma(args.skip[channel], x, sum);
  }
  TS_EVERY_LANE
  for (int32_t n = 0; n < kScanNumbers; ++n) span.state[n * args.channels + channel] = h[n];
}

TS_KERNEL(selective_scan, SelectiveArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), sequence = block / static_cast<uint32_t>(args.parts);
  const int64_t channels = args.channels, channel = (block - sequence * static_cast<uint32_t>(args.parts)) * threads() + thread_index();
  if (channel >= channels) return;
  const Span span = span_of(args.state, sequence);
  if (args.numbers == kScanNumbers) return scan_held(args, span, channel);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float step = softplus(args.dt[row * args.dt_stride + channel]), x = args.x[row * args.x_stride + channel];
    const float inner = step * x;
    const float *b = args.b + row * args.b_stride, *c = args.c + row * args.c_stride;
    float sum = 0.0f;
    for (int64_t n = 0; n < args.numbers; ++n) {
      float* at = span.state + n * channels + channel;
      *at = next_number(*at, step, args.decay[n * channels + channel], b[n], inner);
      sum = fma(c[n], *at, sum);
    }
    args.out[row * args.out_stride + channel] = fma(args.skip[channel], x, sum);
  }
}

}  // namespace cuda
}  // namespace twostroke
