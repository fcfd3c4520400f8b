// delta_rule: the gated delta rule. A thread has one column of a head's state (rows, width) of one sequence; a block has some columns. Each
// number of the state, and each sum over its rows, is computed in one order, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, delta_key, kMostStateRows);
TS_SHARED(float, delta_query, kMostStateRows);
TS_SHARED(float, delta_left, kMostStateRows);
TS_SHARED(float, delta_lanes, 2 * kLanes);  // lanes of the sums of squares of the key and of the query
TS_SHARED(float, delta_beta, 1);

// Returns factor / sqrt(sum of squares + 1e-6). The 16 lanes of the sum lie from `first` on.
TS_DEVICE_INLINE float unit_scale(int first, float factor) {
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = delta_lanes[first + i];
  return factor / __builtin_sqrtf(sum_tree(lanes) + 1e-6f);
}

// Prepares the unit key, the scaled unit query, the decay of each row of the state, and the strength of the correction. All threads of the
// block call it.
TS_DEVICE_INLINE void prepare(const ts_delta_rule_args& args, int64_t head, int64_t row) {
  const int32_t thread = thread_index();
  const int64_t rows = args.k.dim, group = head / (args.v.heads / args.k.heads);
  const float *k = args.k.data + row * args.k.stride + group * rows, *q = args.q.data + row * args.q.stride + group * rows;
  for (int64_t i = thread; i < rows; i += threads()) {
    delta_key[i] = k[i];
    delta_query[i] = q[i];
  }
  barrier();
  if (thread < 2 * kLanes) {
    float squares = 0.0f;
    for (int64_t i = thread % kLanes; i < rows; i += kLanes) {
      const float x = thread < kLanes ? static_cast<float>(delta_key[i]) : static_cast<float>(delta_query[i]);
      squares = fma(x, x, squares);
    }
    delta_lanes[thread] = squares;
  }
  barrier();
  const float query_factor = 1.0f / __builtin_sqrtf(static_cast<float>(rows));
  const float key_scale = unit_scale(0, 1.0f), query_scale = unit_scale(kLanes, query_factor);
  const float lowest = static_cast<float>(args.lowest);
  const bool one_gate = width_of(args.a) == args.v.heads;
  for (int64_t i = thread; i < rows; i += threads()) {
    delta_key[i] = delta_key[i] * key_scale;
    delta_query[i] = delta_query[i] * query_scale;
    const int64_t gate = one_gate ? head : head * rows + i;
    const float raw = args.a.data[row * args.a.stride + gate] + args.dt_bias.data[gate], decay = args.decay.data[head];
    const float power = lowest < 0.0f ? lowest * sigmoid((0.0f - decay) * raw) : decay * softplus(raw);
    delta_left[i] = exp(power) + nan_unless_finite(raw);
  }
  if (thread == 0) {
    const float b = args.b.data[row * args.b.stride + head];
    delta_beta[0] = static_cast<float>(args.strength) * sigmoid(b) + nan_unless_finite(b);
  }
  barrier();
}

// All threads of the block call it, those after the last column too.
template <class Column>
TS_DEVICE_INLINE void go_through(const ts_delta_rule_args& args, int64_t head, int64_t own, const Span& span) {
  const int64_t rows = args.k.dim, width = args.v.dim;
  const bool is_one = own < width;
  Column column(span.state + head * rows * width + (is_one ? own : 0), is_one ? rows : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    prepare(args, head, row);
    if (is_one) {
      float sum = 0.0f;
      column.look([&](int64_t k, float number) { sum = fma(delta_key[k], number * delta_left[k], sum); });
      const float missing = delta_beta[0] * (args.v.data[row * args.v.stride + head * width + own] - sum);
      sum = 0.0f;
      column.change([&](int64_t k, float& number) {
        number = fma(delta_key[k], missing, number * delta_left[k]);
        sum = fma(delta_query[k], number, sum);
      });
      args.out.data[row * args.out.stride + head * width + own] = sum;
    }
    barrier();  // after this, the next token's key may replace this one
  }
  if (is_one) column.end();
}

TS_KERNEL(delta_rule, ts_delta_rule_args) {
  const int64_t heads = args.v.heads, parts = divide_up(args.v.dim, kWarp);
  const int64_t own = block_index() % parts * threads() + thread_index(), of = block_index() / parts;
  const Span span = span_of(args, of / heads);
  if (span.count == 0) return;
  if (args.k.dim * threads() <= kKeptNumbers) {
    go_through<KeptColumn>(args, of % heads, own, span);
  } else {
    go_through<LongColumn>(args, of % heads, own, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
