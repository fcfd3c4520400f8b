// activate: act(x) over x. Every element by itself, so that a row's bits depend on that row alone.
#include "twostroke/activation.h"
#include "twostroke/elements.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void activate_task(const ts_activate_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  with_activation(a.activation, [&](const auto& function) { each_vector(x, width_of(a.out), function, x); });
}

}  // namespace

int32_t run(ts_context* context, const ts_activate_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  share_tasks<activate_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
