// compress: makes entries of several tokens each, by an online softmax over the tokens. A thread has one channel of one sequence. It reads
// and replaces that channel's part of the state, which no other thread touches.
#include "twostroke/cuda/rows/states.h"

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

constexpr int kTokensAtOnce = 4;  // tokens whose inputs are read before the first one is used

// The inputs that a token adds to the entry that closes next, and to the one after it.
struct Inputs {
  float value, gate, next_value, next_gate;
};

TS_KERNEL(compress, ts_compress_args) {
  const int64_t dim = width_of(args.out), parts = parts_of(dim);
  const int64_t channel = block_index() % parts * threads() + thread_index(), s = block_index() / parts;
  const Span span = span_of(args, s);
  if (channel >= dim || span.count == 0) return;
  const bool both = width_of(args.x) == 4 * dim;
  const int64_t series = both ? 2 : 1, own = (series - 1) * dim;  // the last series belongs to the entry that closes next
  float *first = span.state + channel, *second = first + 3 * dim;
  OpenEntry now, next;
  now.read(first, dim);
  next.clear();
  if (both) next.read(second, dim);
  const int32_t before = args.batch.context_tokens[s] - static_cast<int32_t>(span.count), rate = static_cast<int32_t>(args.rate);
  const auto step = [&](int64_t t, const Inputs& in) {
    const int32_t position = before + static_cast<int32_t>(t), place = position % rate;
    if (place == 0) {
      if (both && position > 0) now = next;
      else now.clear();
      if (both) next.clear();
    }
    now.add(in.value, in.gate);
    if (both) next.add(in.next_value, in.next_gate);
    args.out.data[(span.first + t) * args.out.stride + channel] = place == rate - 1 ? now.sum / now.total : 0.0f;
  };
  for (int64_t begin = 0; begin < span.count; begin += kTokensAtOnce) {
    Inputs in[kTokensAtOnce];
    TS_EVERY_LANE
    for (int i = 0; i < kTokensAtOnce; ++i) {
      const int64_t t = begin + i < span.count ? begin + i : span.count - 1;
      const float* values = args.x.data + (span.first + t) * args.x.stride + channel;
      const int64_t place = (before + static_cast<int32_t>(t)) % rate;
      const float *gates = values + series * dim, *bias = args.bias.data + place * series * dim + channel;
      in[i] = {values[own], gates[own] + bias[own], values[0], gates[0] + bias[0]};
    }
    TS_EVERY_LANE
    for (int i = 0; i < kTokensAtOnce; ++i)
      if (begin + i < span.count) step(begin + i, in[i]);
  }
  now.write(first, dim);
  if (both) next.write(second, dim);
}

}  // namespace cuda
}  // namespace twostroke
