// gate: act(gate) * (up + shift). Every element by itself, so that a row's bits depend on that row alone.
#include "twostroke/activation.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

// product(gate, up) of every element. out may be gate: each vector is read before it is written.
template <class Product>
TS_VECTOR_INLINE void gate_row(const float* gate, const float* up, int64_t width, float* out, const Product& product) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, product(load(gate + i), load(up + i)));
  if (i < width) {
    const int64_t rest = width - i;
    store_part(out + i, rest, product(load_part(gate + i, rest, 0.0f), load_part(up + i, rest, 0.0f)));
  }
}

void gate_task(const ts_gate_args& a, int64_t row) {
  const int64_t width = width_of(a.out);
  const float* gate = a.x.data + row * a.x.stride;
  float* out = a.out.data + row * a.out.stride;
  if (a.limit <= 0 && a.shift == 0) {
    with_activation(a.activation, [&](const auto& act) {
      gate_row(gate, gate + width, width, out, [&](Vec g, Vec u) { return act(g) * u; });
    });
    return;
  }
  const Vec most = set1(a.limit > 0 ? static_cast<float>(a.limit) : INFINITY), shift = set1(static_cast<float>(a.shift));
  const Vec least = zero() - most;
  with_activation(a.activation, [&](const auto& act) {
    // NaN stays: it is the second operand.
    if (a.hold_values != 0) {
      gate_row(gate, gate + width, width, out, [&](Vec g, Vec u) { return min(most, act(g)) * (max(least, min(most, u)) + shift); });
      return;
    }
    gate_row(gate, gate + width, width, out, [&](Vec g, Vec u) { return act(min(most, g)) * (max(least, min(most, u)) + shift); });
  });
}

}  // namespace

int32_t run(ts_context* context, const ts_gate_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || 2 * width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  share_tasks<gate_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
