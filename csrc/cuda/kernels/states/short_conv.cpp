// short_conv: a convolution with a few taps over the tokens of each sequence, channel by channel. A thread has one channel of some tokens
// of one sequence. The thread with the first tokens reads and replaces that channel's part of the state, which no other thread touches.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(short_conv, ConvArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), channels = args.channels;
  if (channel >= channels) return;
  const int64_t chunk = block_index() / args.parts % args.chunks, begin = chunk * args.tokens;
  const Span span = span_of(args.state, block_index() / args.parts / args.chunks);
  const int64_t end = begin + args.tokens < span.count ? begin + args.tokens : span.count;
  float* tail = span.state + channel;  // (width - 1, channels)
  const float* x = args.x + span.first * args.x_stride + channel;
  // Input number `token` of this step. A negative number is an input in the state.
  const auto input = [&](int64_t token) { return token < 0 ? tail[(args.width - 1 + token) * channels] : x[token * args.x_stride]; };
  for (int64_t t = begin; t < end; ++t) {
    float sum = args.bias == nullptr ? 0.0f : args.bias[channel];
    for (int64_t j = 0; j < args.width; ++j) sum = fma(args.taps[j * channels + channel], input(t - args.width + 1 + j), sum);
    args.out[(span.first + t) * args.out_stride + channel] = activated(args.activation, sum);
  }
  if (chunk > 0 || span.count == 0) return;
  // Stores the last width - 1 inputs, the oldest first. Row k comes from row k + count >= k, so this order overwrites nothing that is still
  // needed.
  for (int64_t k = 0; k < args.width - 1; ++k) tail[k * channels] = input(span.count - args.width + 1 + k);
}

}  // namespace cuda
}  // namespace twostroke
