// placed_attention: attention whose scores have numbers beside them, by the place of a row and a position. Blocks, segments and their order
// are those of attention.cpp; scores.h adds the numbers.
// Knows: the operands. Must not know: how tiles are computed.
#include "twostroke/attention/job.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

int32_t check(const ts_placed_attention_args& a) {
  if (a.layer == nullptr || a.layer->latent != 0 || a.out.rows != a.q.rows || a.out.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  const ts_sequences& s = a.batch;
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && s.row_starts[s.count] != a.q.rows) return TS_BAD_INDEX;
  if (a.places.data == nullptr || a.places.length % 2 == 0) return TS_BAD_SHAPE;
  const int64_t heads = a.q.heads, count = a.table.data != nullptr ? a.table.length / heads : a.by_row.data != nullptr ? a.by_row.dim : a.by_key.dim;
  if (a.table.data != nullptr && a.table.length != heads * count) return TS_BAD_SHAPE;
  for (const ts_value& each : {a.by_row, a.by_key})
    if (each.data != nullptr && (each.rows != a.q.rows || each.heads != heads || each.dim != count)) return TS_BAD_SHAPE;
  for (int64_t i = 0; i < a.places.length; ++i)
    if (!(a.places.data[i] >= 0.0f && a.places.data[i] < static_cast<float>(count))) return TS_BAD_INDEX;
  if (a.by_key.data != nullptr)  // a key's row is a row of the step
    for (int64_t i = 0; i < s.count; ++i)
      if (s.context_tokens[i] != s.row_starts[i + 1] - s.row_starts[i]) return TS_BAD_SHAPE;
  return TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_placed_attention_args& a) {
  if (context == nullptr) return TS_BAD_POINTER;
  int32_t status = check_layer(a.layer);
  if (status == TS_OK) status = check(a);
  if (status != TS_OK) return status;
  AttentionJob job = {};
  job.layer = a.layer;
  job.q = a.q.data;
  job.q_stride = a.q.stride;
  job.heads = a.q.heads;
  job.row_starts = a.batch.row_starts;
  job.context_tokens = a.batch.context_tokens;
  job.sequences = a.batch.count;
  job.page_table = a.batch.page_table;
  job.page_table_stride = a.batch.max_pages;
  job.scale = static_cast<float>(a.scale);
  job.ahead = static_cast<int32_t>(a.ahead);
  job.out = a.out.data;
  job.out_stride = a.out.stride;
  const int64_t places = a.by_row.data != nullptr ? a.by_row.dim : a.by_key.data != nullptr ? a.by_key.dim : a.table.length / a.q.heads;
  job.places = {a.places.data, a.table.data, a.by_row.data, a.by_key.data, a.places.length / 2, places, a.by_row.stride, a.by_key.stride};
  return run_attention(context, &job);
}

}  // namespace twostroke
