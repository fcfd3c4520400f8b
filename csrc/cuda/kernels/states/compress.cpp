// compress: entries of several tokens each, by an online softmax over the tokens: a thread a channel of one sequence. It reads and replaces
// that channel's part of the state, which no other thread touches.
// Knows: states.h. Must not know: models.
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

constexpr float kNoGate = -3.0e38f;

// One channel of an open entry: three numbers of the state, `dim` apart.
struct OpenEntry {
  float peak, total, sum;

  TS_MEMBER_INLINE void read(const float* state, int64_t dim) {
    peak = state[0];
    total = state[dim];
    sum = state[2 * dim];
  }
  TS_MEMBER_INLINE void write(float* state, int64_t dim) const {
    state[0] = peak;
    state[dim] = total;
    state[2 * dim] = sum;
  }
  TS_MEMBER_INLINE void clear() {
    peak = kNoGate;
    total = 0.0f;
    sum = 0.0f;
  }
  TS_MEMBER_INLINE void add(float value, float raw) {
    const float gate = raw * kLog2E, now = larger(gate, peak), kept = exp2_negative(peak - now), weight = exp2_negative(gate - now);
    peak = now;
    total = fma(total, kept, weight);
    sum = fma(sum, kept, weight * value);
  }
};

TS_KERNEL(compress, CompressArgs) {
  const int64_t channel = block_index() % args.parts * threads() + thread_index(), dim = args.dim, s = block_index() / args.parts;
  const Span span = span_of(args.state, s);
  if (channel >= dim || span.count == 0) return;
  const bool both = args.series == 2;
  const int64_t own = (args.series - 1) * dim;  // the last series counts for the entry that closes next
  float *first = span.state + channel, *second = first + 3 * dim;
  OpenEntry now, next;
  now.read(first, dim);
  next.clear();
  if (both) next.read(second, dim);
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t position = args.context_tokens[s] - span.count + t, place = position % args.rate;
    if (place == 0) {
      if (both && position > 0) now = next;
      else now.clear();
      if (both) next.clear();
    }
    const float* values = args.x + (span.first + t) * args.x_stride + channel;
    const float *gates = values + args.series * dim, *bias = args.bias + place * args.series * dim + channel;
    now.add(values[own], gates[own] + bias[own]);
    if (both) next.add(values[0], gates[0] + bias[0]);
    args.out[(span.first + t) * args.out_stride + channel] = place == args.rate - 1 ? now.sum / now.total : 0.0f;
  }
  now.write(first, dim);
  if (both) next.write(second, dim);
}

}  // namespace cuda
}  // namespace twostroke
