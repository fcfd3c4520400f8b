// gated_norm. Sixteen partial sums of squares, then one fixed tree: a group's bits depend on that group alone.
// Knows: activation.h, the thread pool. Must not know: models.
#include "twostroke/activation.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

// What the norm multiplies a group by: one over the root of its mean square.
Vec norm_of(const float* x, float eps, int64_t width) {
  Vec squares = zero();
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vec v = load_left(x + i, width - i, 0.0f);
    squares = fma(v, v, squares);
  }
  return set1(1.0f / sqrtf(reduce_add(squares) / static_cast<float>(width) + eps));
}

// x * function(gate), x first normed where there are weights. out may be x or gate.
template <class Function>
TS_VECTOR_INLINE void gate_group(const float* x, const float* gate, Vec norm, const float* weight, int64_t width, float* out,
                                 const Function& function) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t left = width - i;
    Vec v = load_left(x + i, left, 0.0f);
    if (weight != nullptr) v = v * norm * load_left(weight + i, left, 0.0f);
    store_left(out + i, left, v * function(load_left(gate + i, left, 0.0f)));
  }
}

void norm_group(const float* x, Vec norm, const float* weight, int64_t width, float* out) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t left = width - i;
    store_left(out + i, left, load_left(x + i, left, 0.0f) * norm * load_left(weight + i, left, 0.0f));
  }
}

void norm_task(void* arg, int64_t row, int32_t) {
  const ts_gated_norm_args& a = *static_cast<const ts_gated_norm_args*>(arg);
  const int64_t width = width_of(a.out) / a.groups;
  const int64_t step = a.weight.length == width ? 0 : width;  // of the weight, from group to group
  with_activation(a.activation, [&](const auto& function) {
    for (int64_t g = 0; g < a.groups; ++g) {
      const float *x = a.x.data + row * a.x.stride + g * width, *gate = a.gate.data + row * a.gate.stride + g * width;
      const float *weight = a.weight.data + g * step, eps = static_cast<float>(a.eps);
      float* out = a.out.data + row * a.out.stride + g * width;
      const bool first = a.gate_first != 0;
      gate_group(x, gate, first ? zero() : norm_of(x, eps, width), first ? nullptr : weight, width, out, function);
      if (first) norm_group(out, norm_of(out, eps, width), weight, width, out);
    }
  });
}

}  // namespace

int32_t run(ts_context* context, const ts_gated_norm_args& a) {
  const int64_t width = width_of(a.out);
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || a.out.rows != a.gate.rows || width_of(a.x) != width || width_of(a.gate) != width) return TS_BAD_SHAPE;
  if (a.groups < 1 || width < 1 || width % a.groups != 0) return TS_BAD_SHAPE;
  if (a.weight.length != width && a.weight.length != width / a.groups) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, norm_task, const_cast<ts_gated_norm_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
