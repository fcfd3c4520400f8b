// rg_lru: the recurrence of Griffin. A thread has one channel of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(rg_lru, ts_rg_lru_args) {
  const int64_t channels = width_of(args.x), parts = parts_of(channels);
  const int64_t channel = block_index() % parts * threads() + thread_index(), s = block_index() / parts;
  if (channel >= channels) return;
  const Span span = span_of(args, s);
  const int64_t before = args.batch.context_tokens[s] - span.count;
  const float rate = -8.0f * softplus(args.rates.data[channel]);
  float state = span.state[channel];
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const float input = args.x.data[row * args.x.stride + channel] * sigmoid(args.input_gate.data[row * args.input_gate.stride + channel]);
    const float exponent = rate * sigmoid(args.recurrent_gate.data[row * args.recurrent_gate.stride + channel]);
    const float added = __builtin_sqrtf(larger(1.0f - exp(exponent + exponent), 0.0f));
    state = before + t == 0 ? input : fma(exp(exponent), state, added * input);
    args.out.data[row * args.out.stride + channel] = state;
  }
  span.state[channel] = state;
}

}  // namespace cuda
}  // namespace twostroke
