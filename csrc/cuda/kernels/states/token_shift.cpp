// token_shift: mixes each row with the row before it, in several ways. A thread has one channel of some tokens of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(token_shift, TokenShiftArgs) {
  const int64_t channels = width_of(args.x), parts = parts_of(channels), channel = block_index() % parts * threads() + thread_index();
  if (channel >= channels) return;
  const int64_t chunk = block_index() / parts % args.chunks, begin = chunk * args.tokens;
  const Span span = span_of(args, block_index() / parts / args.chunks);
  if (begin >= span.count) return;
  const int64_t last = span.first + span.count, end = span.first + begin + args.tokens;
  float before = begin == 0 ? span.state[channel] : args.x.data[(span.first + begin - 1) * args.x.stride + channel];
  for (int64_t row = span.first + begin; row < (end < last ? end : last); ++row) {
    const float x = args.x.data[row * args.x.stride + channel];
    for (int64_t at = channel; at < args.mix.length; at += channels) args.out.data[row * args.out.stride + at] = x + (before - x) * args.mix.data[at];
    before = x;
  }
  if (begin == 0) span.state[channel] = args.x.data[(last - 1) * args.x.stride + channel];
}

}  // namespace cuda
}  // namespace twostroke
