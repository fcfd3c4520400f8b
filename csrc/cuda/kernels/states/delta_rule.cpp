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
TS_DEVICE_INLINE void prepare(const DeltaArgs& args, int64_t head, int64_t row) {
  const int32_t thread = thread_index();
  const int64_t group = head / (args.heads / args.key_heads);
  const float *k = args.k + row * args.k_stride + group * args.rows, *q = args.q + row * args.q_stride + group * args.rows;
  for (int64_t i = thread; i < args.rows; i += threads()) {
    delta_key[i] = k[i];
    delta_query[i] = q[i];
  }
  barrier();
  if (thread < 2 * kLanes) {
    float squares = 0.0f;
    for (int64_t i = thread % kLanes; i < args.rows; i += kLanes) {
      const float x = thread < kLanes ? static_cast<float>(delta_key[i]) : static_cast<float>(delta_query[i]);
      squares = fma(x, x, squares);
    }
    delta_lanes[thread] = squares;
  }
  barrier();
  const float key_scale = unit_scale(0, 1.0f), query_scale = unit_scale(kLanes, args.query_factor);
  for (int64_t i = thread; i < args.rows; i += threads()) {
    delta_key[i] = delta_key[i] * key_scale;
    delta_query[i] = delta_query[i] * query_scale;
    const int64_t gate = head * args.gates + (args.gates == 1 ? 0 : i);
    const float raw = args.a[row * args.a_stride + gate] + args.dt_bias[gate], decay = args.decay[head];
    const float power = args.lowest < 0.0f ? args.lowest * sigmoid((0.0f - decay) * raw) : decay * softplus(raw);
    delta_left[i] = exp(power) + nan_unless_finite(raw);
  }
  if (thread == 0) {
    const float b = args.b[row * args.b_stride + head];
    delta_beta[0] = args.strength * sigmoid(b) + nan_unless_finite(b);
  }
  barrier();
}

// All threads of the block call it, those after the last column too.
template <class Column>
TS_DEVICE_INLINE void go_through(const DeltaArgs& args, int64_t head, int64_t own, const Span& span) {
  const int64_t width = args.width;
  const bool is_one = own < width;
  Column column(span.state + head * args.rows * width + (is_one ? own : 0), is_one ? args.rows : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    prepare(args, head, row);
    if (is_one) {
      float sum = 0.0f;
      column.look([&](int64_t k, float number) { sum = fma(delta_key[k], number * delta_left[k], sum); });
      const float missing = delta_beta[0] * (args.v[row * args.v_stride + head * width + own] - sum);
      sum = 0.0f;
      column.change([&](int64_t k, float& number) {
        number = fma(delta_key[k], missing, number * delta_left[k]);
        sum = fma(delta_query[k], number, sum);
      });
      args.out[row * args.out_stride + head * width + own] = sum;
    }
    barrier();  // after this, the next token's key may replace this one
  }
  if (is_one) column.end();
}

TS_KERNEL(delta_rule, DeltaArgs) {
  const int64_t own = block_index() % args.parts * threads() + thread_index(), of = block_index() / args.parts;
  const Span span = span_of(args.state, of / args.heads);
  if (span.count == 0) return;
  if (args.rows * threads() <= kKeptNumbers) {
    go_through<KeptColumn>(args, of % args.heads, own, span);
  } else {
    go_through<LongColumn>(args, of % args.heads, own, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
