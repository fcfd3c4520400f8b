// activate: act(x) over x. Every element by itself, so that a row's bits depend on that row alone.
#include "twostroke/activation.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

template <class Function>
TS_VECTOR_INLINE void activate_row(float* x, int64_t width, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(x + i, function(load(x + i)));
  if (i < width) store_part(x + i, width - i, function(load_part(x + i, width - i, 0.0f)));
}

void activate_task(const ts_activate_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  with_activation(a.activation, [&](const auto& function) { activate_row(x, width_of(a.out), function); });
}

}  // namespace

int32_t run(ts_context* context, const ts_activate_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  share_tasks<activate_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
