// delta_rule: the gated delta rule, a block a head of one sequence, a thread a column of its state (rows, width), or two. Each number of the state,
// and each sum over its rows, is made in one order, so bits do not depend on how a sequence is cut into steps.
// Knows: states.h, lanes.h, held.h. Must not know: models.
#include "twostroke/cuda/held.h"
#include "twostroke/cuda/lanes.h"
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, delta_key, kMostStateRows);
TS_SHARED(float, delta_query, kMostStateRows);
TS_SHARED(float, delta_left, kMostStateRows);
TS_SHARED(float, delta_scales, 2);  // of the key and of the query
TS_SHARED(float, delta_beta, 1);

// The sum of squares of delta_key in the first half of the warp, of delta_query in the second, in 16 lanes and then over them.
TS_DEVICE_INLINE float squares_of_halves(int32_t rows) {
  const int32_t lane = warp_lane() % kLanes;
  const bool of_key = warp_lane() < kLanes;
  float squares = 0.0f;
  for (int32_t first = lane; first < rows; first += 8 * kLanes) {
    float x[8];
    TS_EVERY_LANE
    for (int32_t j = 0; j < 8; ++j) {
      const int32_t i = first + j * kLanes;
      x[j] = i >= rows ? 0.0f : of_key ? static_cast<float>(delta_key[i]) : static_cast<float>(delta_query[i]);
    }
    TS_EVERY_LANE
    for (int32_t j = 0; j < 8; ++j)
      if (first + j * kLanes < rows) squares = fma(x[j], x[j], squares);
  }
  return sum_of_half_warp(squares);
}

// Unit key, scaled unit query, what is left of each row of the state, how strongly it is corrected. By all threads of the block.
TS_DEVICE_INLINE void prepare(const DeltaArgs& args, int64_t head, int64_t row) {
  const int32_t thread = thread_index(), rows = static_cast<int32_t>(args.rows);
  const int64_t group = head / (args.heads / args.key_heads);
  const float *k = args.k + row * args.k_stride + group * rows, *q = args.q + row * args.q_stride + group * rows;
  for (int32_t i = thread; i < rows; i += threads()) {
    delta_key[i] = k[i];
    delta_query[i] = q[i];
    const int64_t gate = head * args.gates + (args.gates == 1 ? 0 : i);
    const float step = softplus(args.a[row * args.a_stride + gate] + args.dt_bias[gate]);
    delta_left[i] = exp(args.decay[head] * step) + nan_unless_finite(step);
  }
  if (thread == 0) {
    const float b = args.b[row * args.b_stride + head];
    delta_beta[0] = args.strength * sigmoid(b) + nan_unless_finite(b);
  }
  barrier();
  if (warp_index() == 0) {
    const float squares = squares_of_halves(rows), factor = thread == 0 ? 1.0f : args.query_factor;
    if (thread % kLanes == 0) delta_scales[thread / kLanes] = factor / __builtin_sqrtf(squares + 1e-6f);
  }
  barrier();
  for (int32_t i = thread; i < rows; i += threads()) {
    delta_key[i] = delta_key[i] * delta_scales[0];
    delta_query[i] = delta_query[i] * delta_scales[1];
  }
  barrier();
}

// The same numbers of the block at the places of held.h.
TS_SHARED(float, held_key, 2 * kHeldStep);
TS_SHARED(float, held_query, 2 * kHeldStep);
TS_SHARED(float, held_left, 2 * kHeldStep);

TS_DEVICE_INLINE void scan_held(const DeltaArgs& args, const Span& span, int64_t head, float* state) {
  const HeldPart own(args.rows, args.width);
  const int32_t rows = static_cast<int32_t>(args.rows);
  const int64_t at = head * args.width + own.column;
  float s[kHeld];
  own.read(s, state, args.width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float v = own.own ? args.v[row * args.v_stride + at] : 0.0f;
    prepare(args, head, row);
    for (int32_t i = thread_index(); i < rows; i += threads()) {
      held_key[held_place(i)] = delta_key[i];
      held_query[held_place(i)] = delta_query[i];
      held_left[held_place(i)] = delta_left[i];
    }
    barrier();
    TS_EVERY_LANE
    for (int32_t k = 0; k < kHeld; ++k) s[k] = s[k] * held_left[own.part * kHeldStep + k];
    const float missing = delta_beta[0] * (v - own.sum(s, held_key));
    TS_EVERY_LANE
    for (int32_t k = 0; k < kHeld; ++k) s[k] = fma(held_key[own.part * kHeldStep + k], missing, s[k]);
    const float sum = own.sum(s, held_query);
    if (own.own && own.part == 0) args.out[row * args.out_stride + at] = sum;
    barrier();  // before the next token's key takes this one's place
  }
  own.write(s, state, args.width);
}

TS_KERNEL(delta_rule, DeltaArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), heads = static_cast<uint32_t>(args.heads);
  const int64_t head = block % heads, width = args.width;
  const Span span = span_of(args.state, block / heads);
  float* state = span.state + head * args.rows * width;
  if (is_held(args.rows, width, threads())) return scan_held(args, span, head, state);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    prepare(args, head, row);
    for (int64_t column = thread_index(); column < width; column += threads()) {
      float sum = 0.0f;
      for (int64_t k = 0; k < args.rows; ++k) sum = fma(delta_key[k], state[k * width + column] * delta_left[k], sum);
      const float missing = delta_beta[0] * (args.v[row * args.v_stride + head * width + column] - sum);
      sum = 0.0f;
      for (int64_t k = 0; k < args.rows; ++k) {
        float* at = state + k * width + column;
        const float now = fma(delta_key[k], missing, *at * delta_left[k]);
        sum = fma(delta_query[k], now, sum);
        *at = now;
      }
      args.out[row * args.out_stride + head * width + column] = sum;
    }
    barrier();  // before the next token's key takes this one's place
  }
}

}  // namespace cuda
}  // namespace twostroke
