// Ops that compute each element by itself. A thread has four elements of a row.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

// x has the shape (rows, 2 * width), gates first. out may be the first half of x.
TS_KERNEL(gate, ts_gate_args) {
  const int64_t width = width_of(args.out);
  const FourPlace e = four_place(width);
  if (e.count == 0) return;
  const float limit = static_cast<float>(args.limit), shift = static_cast<float>(args.shift);
  const bool hold_values = args.hold_values != 0 && limit > 0.0f;  // the limit applies to act(gate), not to gate
  const float* x = args.x.data + e.row * args.x.stride + e.at;
  Four gate = load_four(x, e.count), up = load_four(x + width, e.count);
  if (limit > 0.0f || shift != 0.0f) {  // NaN stays NaN, because it is the second operand
    const float most = limit > 0.0f ? limit : __builtin_inff();
    TS_EACH_OF_FOUR {
      if (!hold_values) gate.v[i] = smaller(most, gate.v[i]);
      up.v[i] = larger(0.0f - most, smaller(most, up.v[i])) + shift;
    }
  }
  activate_four(args.activation, gate);
  if (hold_values) TS_EACH_OF_FOUR gate.v[i] = smaller(limit, gate.v[i]);
  TS_EACH_OF_FOUR gate.v[i] = gate.v[i] * up.v[i];
  store_four(args.out.data + e.row * args.out.stride + e.at, gate, e.count);
}

TS_KERNEL(multiply, ts_multiply_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  const float* gates = args.gate.data + e.row * args.gate.stride;
  const uint32_t shared = static_cast<uint32_t>(width_of(args.x)) / static_cast<uint32_t>(width_of(args.gate));  // elements of x that share a gate
  Four factor;
  if (shared == 1) factor = load_four(gates + e.at, e.count);
  else TS_EACH_OF_FOUR factor.v[i] = i < e.count ? gates[static_cast<uint32_t>(e.at + i) / shared] : 0.0f;
  activate_four(args.activation, factor);
  Four x = load_four(args.x.data + e.row * args.x.stride + e.at, e.count);
  TS_EACH_OF_FOUR x.v[i] = x.v[i] * factor.v[i];
  store_four(args.out.data + e.row * args.out.stride + e.at, x, e.count);
}

// rows: NULL for all rows in their order.
TS_KERNEL(gather_rows, ts_gather_rows_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  const int64_t from = args.rows.data == nullptr ? e.row : args.rows.data[e.row];
  store_four(args.out.data + e.row * args.out.stride + e.at, load_four(args.x.data + from * args.x.stride + e.at, e.count), e.count);
}

// Rotates the first `count` of four pairs of dimensions.
TS_DEVICE_INLINE void turn_four(float* low_at, float* high_at, const float* cos_at, const float* sin_at, int32_t count) {
  const Four low = load_four(low_at, count), high = load_four(high_at, count), c = load_four(cos_at, count), s = load_four(sin_at, count);
  Four first, second;
  TS_EACH_OF_FOUR {
    first.v[i] = low.v[i] * c.v[i] - high.v[i] * s.v[i];
    second.v[i] = high.v[i] * c.v[i] + low.v[i] * s.v[i];
  }
  store_four(low_at, first, count);
  store_four(high_at, second, count);
}

// A thread has four pairs of dimensions. They belong to one head where heads have whole fours.
TS_KERNEL(rope, ts_rope_args) {
  const uint32_t half = static_cast<uint32_t>(args.table.half);
  const FourPlace e = four_place(args.out.heads * args.table.half);
  if (e.count == 0) return;
  const int64_t table = args.positions.data[e.row] * args.table.half;
  float* row = args.out.data + e.row * args.out.stride;
  const int32_t together = half % 4 == 0 ? e.count : 1;
  for (int32_t i = 0; i < e.count; i += together) {
    const uint32_t pair = static_cast<uint32_t>(e.at + i), head = pair / half, d = pair - head * half;
    float* low = row + head * args.out.dim + d;
    turn_four(low, low + half, args.table.cos_table + table + d, args.table.sin_table + table + d, together);
  }
}

}  // namespace cuda
}  // namespace twostroke
