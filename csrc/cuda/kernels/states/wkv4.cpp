// wkv4: the scan of RWKV-4. A thread has one channel of one sequence.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(wkv4, Wkv4Args) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), s = block_index() / args.parts;
  if (channel >= args.channels) return;
  const Span span = span_of(args.state, s);
  const bool begins = args.context_tokens[s] == span.count && span.count > 0;
  const float bonus = args.first[channel], decay = args.decay[channel];
  float* state = span.state + channel;
  float num = 0.0f, den = 0.0f, most = args.least;
  if (!begins) {
    num = state[0];
    den = state[args.channels];
    most = state[2 * args.channels];
  }
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const float key = args.k[row * args.k_stride + channel], value = args.v[row * args.v_stride + channel];
    const float seen = key + bonus, largest = larger(most, seen);
    const float kept = exp(most - largest), added = exp(seen - largest);
    args.out[row * args.out_stride + channel] = fma(kept, num, added * value) / fma(kept, den, added);
    const float older = most + decay, next = larger(older, key);
    const float held = exp(older - next), own = exp(key - next);
    num = fma(held, num, own * value);
    den = fma(held, den, own);
    most = next;
  }
  state[0] = num;
  state[args.channels] = den;
  state[2 * args.channels] = most;
}

}  // namespace cuda
}  // namespace twostroke
