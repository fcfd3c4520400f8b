// latent_attention: attention over paged latents, whose single head all query heads share. The blocks, the segments and their order are
// those of attention.cpp. A tile is widened once for all heads of a block.
#include "twostroke/attention/job.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

// Fills in a job with the operands that both ops have. Returns a ts_status.
template <class Args>
int32_t fill(ts_context* context, const Args& a, AttentionJob* job) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  const ts_sequences& s = a.batch;
  if (a.layer->latent == 0 || !same_shape(a.out, a.q) || a.q.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  if (a.q_turned.rows != a.q.rows || a.q_turned.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q_turned.dim != a.layer->head_dim - a.layer->value_dim) return TS_BAD_SHAPE;
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && s.row_starts[s.count] != a.q.rows) return TS_BAD_INDEX;
  *job = job_of(a);
  job->q_turned = a.q_turned.data;
  job->turned_stride = a.q_turned.stride;
  return TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_latent_attention_args& a) {
  AttentionJob job = {};
  const int32_t status = fill(context, a, &job);
  if (status != TS_OK) return status;
  if (a.window < 0 || a.window > INT32_MAX) return TS_BAD_SHAPE;
  job.window = static_cast<int32_t>(a.window);
  return run_attention(context, &job);
}

int32_t run(ts_context* context, const ts_chosen_latent_attention_args& a) {
  AttentionJob job = {};
  const int32_t status = fill(context, a, &job);
  if (status != TS_OK) return status;
  if (a.chosen.rows != a.q.rows) return TS_BAD_SHAPE;
  if (a.sinks.data != nullptr && a.sinks.length != a.q.heads) return TS_BAD_SHAPE;
  job.sinks = a.sinks.data;
  job.chosen = a.chosen.data;
  job.chosen_stride = a.chosen.stride;
  job.choices = width_of(a.chosen);
  return run_attention(context, &job);
}

}  // namespace twostroke
