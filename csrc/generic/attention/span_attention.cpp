// span_attention: attention in which the rows of a span see each other. The blocks, the segments and their order are those of
// attention.cpp.
#include "twostroke/attention/job.h"
#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {

int32_t run(ts_context* context, const ts_span_attention_args& a) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent != 0 || a.out.rows != a.q.rows || a.out.heads != a.q.heads || a.ends.count != a.q.rows) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  if (a.batch.count > 0 && a.batch.row_starts[a.batch.count] != a.q.rows) return TS_BAD_INDEX;
  AttentionJob job = job_of(a);
  job.window = static_cast<int32_t>(a.window);
  job.soft_cap = static_cast<float>(a.soft_cap);
  job.ends = a.ends.data;
  return run_attention(context, &job);
}

}  // namespace twostroke
