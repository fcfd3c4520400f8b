// gated_norm: a group's sum of squares is sixteen partial sums and then one fixed tree, so a group's bits depend on that group alone.
#include "twostroke/rows/activation.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

// out may be x or gate.
template <class Function>
TS_VECTOR_INLINE void norm_group(const float* x, const float* gate, const float* weight, float eps, int64_t width, bool gate_first,
                                 float* out, const Function& function) {
  Vec squares = zero();
  const int64_t whole = width - width % kLanes, rest = width - whole;
  // First comes x, gated where the gate comes before the norm; the gated numbers are kept in out.
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec v = gate_first ? load(x + i) * function(load(gate + i)) : load(x + i);
    squares = fma(v, v, squares);
    if (gate_first) store(out + i, v);
  }
  if (rest > 0) {
    const Vec v = load_part(x + whole, rest, 0.0f);
    const Vec gated = gate_first ? v * function(load_part(gate + whole, rest, 0.0f)) : v;
    squares = fma(gated, gated, squares);
    if (gate_first) store_part(out + whole, rest, gated);
  }
  const Vec scale = set1(1.0f / sqrtf(reduce_add(squares) / static_cast<float>(width) + eps));
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec normed = (gate_first ? load(out + i) : load(x + i)) * scale * load(weight + i);
    store(out + i, gate_first ? normed : normed * function(load(gate + i)));
  }
  if (rest > 0) {
    const Vec v = gate_first ? load_part(out + whole, rest, 0.0f) : load_part(x + whole, rest, 0.0f);
    const Vec normed = v * scale * load_part(weight + whole, rest, 0.0f);
    store_part(out + whole, rest, gate_first ? normed : normed * function(load_part(gate + whole, rest, 0.0f)));
  }
}

void norm_task(const ts_gated_norm_args& a, int64_t row) {
  const int64_t width = width_of(a.out) / a.groups;
  const int64_t step = a.weight.length == width ? 0 : width;  // step: the distance from a group's weights to those of the next group
  with_activation(a.activation, [&](const auto& function) {
    for (int64_t g = 0; g < a.groups; ++g)
      norm_group(a.x.data + row * a.x.stride + g * width, a.gate.data + row * a.gate.stride + g * width, a.weight.data + g * step,
                 static_cast<float>(a.eps), width, a.gate_first != 0, a.out.data + row * a.out.stride + g * width, function);
  });
}

}  // namespace

int32_t run(ts_context* context, const ts_gated_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<norm_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
