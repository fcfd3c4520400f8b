// gate: act(gate) * up. Every element by itself, so that a row's bits depend on that row alone.
// Knows: activation.h, the thread pool. Must not know: products.
#include "twostroke/activation.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

template <class Function>
TS_VECTOR_INLINE void gate_row(const float* gate, const float* up, int64_t width, float* out, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, function(load(gate + i)) * load(up + i));
  if (i < width) {
    const int64_t rest = width - i;
    store_part(out + i, rest, function(load_part(gate + i, rest, 0.0f)) * load_part(up + i, rest, 0.0f));
  }
}

void gate_task(void* arg, int64_t row, int32_t) {
  const ts_gate_args& a = *static_cast<const ts_gate_args*>(arg);
  const int64_t width = width_of(a.out);
  const float* gate = a.x.data + row * a.x.stride;
  float* out = a.out.data + row * a.out.stride;
  with_activation(a.activation, [&](const auto& function) { gate_row(gate, gate + width, width, out, function); });
}

}  // namespace

int32_t run(ts_context* context, const ts_gate_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || 2 * width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, gate_task, const_cast<ts_gate_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
