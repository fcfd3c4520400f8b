// rg_lru: the recurrence of Griffin. A thread has one channel of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(rg_lru, RgLruArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), s = block_index() / args.parts;
  if (channel >= args.channels) return;
  const Span span = span_of(args.state, s);
  const int64_t before = args.context_tokens[s] - span.count;
  const float rate = -8.0f * softplus(args.rates[channel]);
  float state = span.state[channel];
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const float input = args.x[row * args.x_stride + channel] * sigmoid(args.input_gate[row * args.input_stride + channel]);
    const float exponent = rate * sigmoid(args.recurrent_gate[row * args.recurrent_stride + channel]);
    const float added = __builtin_sqrtf(larger(1.0f - exp(exponent + exponent), 0.0f));
    state = before + t == 0 ? input : fma(exp(exponent), state, added * input);
    args.out[row * args.out_stride + channel] = state;
  }
  span.state[channel] = state;
}

}  // namespace cuda
}  // namespace twostroke
