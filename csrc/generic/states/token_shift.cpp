// token_shift: mixes each row with the row before it in its sequence, in several ways. A task is one sequence, because its rows read the
// row before them and the last row is kept.
#include <string.h>

#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void shift_task(const ts_token_shift_args& a, int64_t index) {
  const int64_t width = width_of(a.x), ways = width_of(a.out) / width;
  const Span span = span_of(a.state, a.slots, a.batch, index);
  const float* before = span.state;
  for (int64_t t = 0; t < span.count; ++t) {
    const float* x = a.x.data + (span.first + t) * a.x.stride;
    float* out = a.out.data + (span.first + t) * a.out.stride;
    for (int64_t way = 0; way < ways; ++way) {
      const float* mix = a.mix.data + way * width;
      for (int64_t i = 0; i < width; ++i) out[way * width + i] = x[i] + (before[i] - x[i]) * mix[i];
    }
    before = x;
  }
  if (span.count > 0) memcpy(span.state, before, static_cast<size_t>(width) * sizeof(float));
}

}  // namespace

int32_t run(ts_context* context, const ts_token_shift_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<shift_task>(context, a.batch.count, a);
  return TS_OK;
}

}  // namespace twostroke
