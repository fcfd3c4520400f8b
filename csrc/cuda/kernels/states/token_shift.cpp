// token_shift: mixes each row with the row before it, in several ways. A thread has one channel of some tokens of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

// taps: the mixes (ways, channels); `width` is the number of ways.
TS_KERNEL(token_shift, ConvArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), channels = args.channels;
  if (channel >= channels) return;
  const int64_t chunk = block_index() / args.parts % args.chunks, begin = chunk * args.tokens;
  const Span span = span_of(args.state, block_index() / args.parts / args.chunks);
  if (begin >= span.count) return;
  const int64_t last = span.first + span.count, end = span.first + begin + args.tokens;
  float before = begin == 0 ? span.state[channel] : args.x[(span.first + begin - 1) * args.x_stride + channel];
  for (int64_t row = span.first + begin; row < (end < last ? end : last); ++row) {
    const float x = args.x[row * args.x_stride + channel];
    for (int64_t at = channel; at < args.width * channels; at += channels) args.out[row * args.out_stride + at] = x + (before - x) * args.taps[at];
    before = x;
  }
  if (begin == 0) span.state[channel] = args.x[(last - 1) * args.x_stride + channel];
}

}  // namespace cuda
}  // namespace twostroke
