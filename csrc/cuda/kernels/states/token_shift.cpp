// token_shift: each row mixed with the row before it, in several ways: a thread a channel of one sequence.
// Knows: states.h. Must not know: models.
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

// taps: the mixes (width ways, channels).
TS_KERNEL(token_shift, ConvArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), channels = args.channels;
  if (channel >= channels) return;
  const Span span = span_of(args.state, block_index() / args.parts);
  float before = span.state[channel];
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float x = args.x[row * args.x_stride + channel];
    for (int64_t at = channel; at < args.width * channels; at += channels) args.out[row * args.out_stride + at] = x + (before - x) * args.taps[at];
    before = x;
  }
  span.state[channel] = before;
}

}  // namespace cuda
}  // namespace twostroke
