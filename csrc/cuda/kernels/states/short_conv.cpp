// short_conv: a convolution with a few taps over the tokens of each sequence, channel by channel. A thread has one channel of some tokens
// of one sequence. The thread with the first tokens reads and replaces that channel's part of the state, which no other thread touches.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(short_conv, ShortConvArgs) {
  const int64_t channels = width_of(args.x), parts = parts_of(channels), channel = block_index() % parts * threads() + thread_index();
  if (channel >= channels) return;
  const int64_t chunk = block_index() / parts % args.chunks, begin = chunk * args.tokens;
  const Span span = span_of(args, block_index() / parts / args.chunks);
  const int64_t width = static_cast<uint32_t>(args.taps.length) / static_cast<uint32_t>(channels);
  const int64_t end = begin + args.tokens < span.count ? begin + args.tokens : span.count;
  float* tail = span.state + channel;  // (width - 1, channels)
  const float* x = args.x.data + span.first * args.x.stride + channel;
  // Input number `token` of this step. A negative number is an input in the state.
  const auto input = [&](int64_t token) { return token < 0 ? tail[(width - 1 + token) * channels] : x[token * args.x.stride]; };
  for (int64_t t = begin; t < end; ++t) {
    float sum = args.bias.data == nullptr ? 0.0f : args.bias.data[channel];
    for (int64_t j = 0; j < width; ++j) sum = fma(args.taps.data[j * channels + channel], input(t - width + 1 + j), sum);
    args.out.data[(span.first + t) * args.out.stride + channel] = activated(args.activation, sum);
  }
  if (chunk > 0 || span.count == 0) return;
  // Stores the last width - 1 inputs, the oldest first. Row k comes from row k + count >= k, so this order overwrites nothing that is still
  // needed.
  for (int64_t k = 0; k < width - 1; ++k) tail[k * channels] = input(span.count - width + 1 + k);
}

}  // namespace cuda
}  // namespace twostroke
