// wkv4: the scan of RWKV-4. A thread has one channel of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(wkv4, ts_wkv4_args) {
  const int64_t channels = width_of(args.k), parts = parts_of(channels);
  const int64_t channel = block_index() % parts * threads() + thread_index(), s = block_index() / parts;
  if (channel >= channels) return;
  const Span span = span_of(args, s);
  const bool begins = args.batch.context_tokens[s] == span.count && span.count > 0;
  const float bonus = args.first.data[channel], decay = args.decay.data[channel];
  float* state = span.state + channel;
  float num = 0.0f, den = 0.0f, most = kBeforeTheFirst;
  if (!begins) {
    num = state[0];
    den = state[channels];
    most = state[2 * channels];
  }
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const float key = args.k.data[row * args.k.stride + channel], value = args.v.data[row * args.v.stride + channel];
    const float seen = key + bonus, largest = larger(most, seen);
    const float kept = exp(most - largest), added = exp(seen - largest);
    args.out.data[row * args.out.stride + channel] = fma(kept, num, added * value) / fma(kept, den, added);
    const float older = most + decay, next = larger(older, key);
    const float held = exp(older - next), own = exp(key - next);
    num = fma(held, num, own * value);
    den = fma(held, den, own);
    most = next;
  }
  state[0] = num;
  state[channels] = den;
  state[2 * channels] = most;
}

}  // namespace cuda
}  // namespace twostroke
