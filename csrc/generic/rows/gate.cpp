// gate: act(gate) * (up + shift). Each element is computed by itself, so that a row's bits depend on that row alone.
#include "twostroke/rows/activation.h"
#include "twostroke/checks.h"
#include "twostroke/rows/elements.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void gate_task(const ts_gate_args& a, int64_t row) {
  const int64_t width = width_of(a.out);
  const float *gate = a.x.data + row * a.x.stride, *up = gate + width;
  float* out = a.out.data + row * a.out.stride;
  if (a.limit <= 0 && a.shift == 0) {
    with_activation(a.activation, [&](const auto& act) {
      each_vector(out, width, [&](Vec g, Vec u) { return act(g) * u; }, gate, up);
    });
    return;
  }
  const Vec most = set1(a.limit > 0 ? static_cast<float>(a.limit) : INFINITY), shift = set1(static_cast<float>(a.shift));
  const Vec least = zero() - most;
  with_activation(a.activation, [&](const auto& act) {
    // NaN stays NaN, because it is the second operand.
    if (a.hold_values != 0) {
      each_vector(out, width, [&](Vec g, Vec u) { return min(most, act(g)) * (max(least, min(most, u)) + shift); }, gate, up);
      return;
    }
    each_vector(out, width, [&](Vec g, Vec u) { return act(min(most, g)) * (max(least, min(most, u)) + shift); }, gate, up);
  });
}

}  // namespace

int32_t run(ts_context* context, const ts_gate_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<gate_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
