// multiply: x * act(gate). Each element is computed by itself, so that a row's bits depend on that row alone.
#include "twostroke/rows/activation.h"
#include "twostroke/checks.h"
#include "twostroke/rows/elements.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

// Takes sixteen gates at a time, each for `shared` elements.
template <class Function>
TS_VECTOR_INLINE void multiply_shared(const float* x, const float* gate, int64_t gates, int64_t shared, float* out, const Function& function) {
  for (int64_t g = 0; g < gates; g += kLanes) {
    const int64_t count = gates - g < kLanes ? gates - g : kLanes;
    float factors[kLanes];
    store(factors, function(load_part(gate + g, count, 0.0f)));
    for (int64_t j = 0; j < count; ++j) {
      const int64_t first = (g + j) * shared;
      for (int64_t i = first; i < first + shared; ++i) out[i] = x[i] * factors[j];
    }
  }
}

void multiply_task(const ts_multiply_args& a, int64_t row) {
  const int64_t width = width_of(a.out), gates = width_of(a.gate);
  const float *x = a.x.data + row * a.x.stride, *gate = a.gate.data + row * a.gate.stride;
  float* out = a.out.data + row * a.out.stride;
  with_activation(a.activation, [&](const auto& function) {
    if (gates == width) each_vector(out, width, [&](Vec v, Vec g) { return v * function(g); }, x, gate);
    else multiply_shared(x, gate, gates, width / gates, out, function);
  });
}

}  // namespace

int32_t run(ts_context* context, const ts_multiply_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<multiply_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
