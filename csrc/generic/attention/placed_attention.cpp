// placed_attention: attention with numbers that are added to the scores, by the place of a row and a position. The blocks, the segments and
// their order are those of attention.cpp; scores.h adds the numbers.
#include "twostroke/attention/job.h"
#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {

int32_t run(ts_context* context, const ts_placed_attention_args& a) {
  if (context == nullptr) return TS_BAD_POINTER;
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t places = places_of(a);
  for (int64_t i = 0; i < a.places.length; ++i)
    if (!(a.places.data[i] >= 0.0f && a.places.data[i] < static_cast<float>(places))) return TS_BAD_INDEX;
  AttentionJob job = job_of(a);
  job.ahead = static_cast<int32_t>(a.ahead);
  job.places = {a.places.data, a.table.data, a.by_row.data, a.by_key.data, a.places.length / 2, places, a.by_row.stride, a.by_key.stride};
  return run_attention(context, &job);
}

}  // namespace twostroke
