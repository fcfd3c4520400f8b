// soft_cap: x = cap * tanh(x / cap). Every element by itself, so that a row's bits depend on that row alone.
// A task is a part of a row: rows of logits are few and long.
#include "twostroke/context.h"
#include "twostroke/elements.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

constexpr int64_t kPart = 4096;  // elements of a task; a multiple of kLanes

struct CapJob {
  const ts_soft_cap_args* args;
  int64_t parts;  // of each row
};

void cap_task(void* arg, int64_t index, int32_t) {
  const CapJob& job = *static_cast<const CapJob*>(arg);
  const ts_value& out = job.args->out;
  const int64_t width = width_of(out), first = index % job.parts * kPart, end = first + kPart < width ? first + kPart : width;
  float* x = out.data + index / job.parts * out.stride;
  const float cap = static_cast<float>(job.args->cap);
  const Vec high = set1(cap), inverse = set1(1.0f / cap);
  each_vector(x + first, end - first, [&](Vec v) { return tanh_ratio(v * inverse) * high; }, x + first);
}

}  // namespace

int32_t run(ts_context* context, const ts_soft_cap_args& a) {
  if (!(a.cap > 0.0)) return TS_BAD_VALUE;
  CapJob job = {&a, (width_of(a.out) + kPart - 1) / kPart};
  ts_parallel(context, a.out.rows * job.parts, cap_task, &job);
  return TS_OK;
}

}  // namespace twostroke
