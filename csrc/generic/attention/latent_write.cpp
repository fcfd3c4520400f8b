// latent_write: writes latents of new positions, with the rotary keys after them, into their pages, rounded as in
// ops/attention/latent_write.py.
#include "twostroke/attention/kv_row.h"
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void write_row(const ts_latent_write_args& a, int64_t t) {
  const KVLayout layout(a.layer);
  const int64_t page = a.slots.data[t] / TS_PAGE_TOKENS, offset = a.slots.data[t] % TS_PAGE_TOKENS;
  const int64_t dim = a.layer->head_dim, latent = a.layer->value_dim;
  const float* row = a.rows.data + t * a.rows.stride;
  uint8_t* keys = layout.keys(page, 0);
  if (a.layer->kind == TS_KV_F32) return write_keys_f32(row, dim, offset, keys);
  if (a.layer->kind == TS_KV_BF16) return write_keys_bf16(row, dim, offset, keys);
  const bool nibbles = a.layer->kind == TS_KV_INT4;
  uint8_t* second_scale = layout.value_scales(keys) + 2 * offset;
  memset(second_scale, 0, 2);
  const Rounding first(row, latent, nibbles, layout.key_scales(keys) + 2 * offset);
  const Rounding second = latent < dim ? Rounding(row + latent, dim - latent, nibbles, second_scale) : first;
  const auto number = [&](int64_t d) { return d < latent ? first(row[d]) : second(row[d]); };
  nibbles ? write_keys_int4(number, dim, offset, keys) : write_keys_int8(number, dim, offset, keys);
}

// a task is mostly one page, because two threads in one page would pass its lines to and fro
constexpr int64_t kTokensPerTask = TS_PAGE_TOKENS;

void write_task(const ts_latent_write_args& a, int64_t index) {
  const int64_t first = index * kTokensPerTask, end = first + kTokensPerTask < a.rows.rows ? first + kTokensPerTask : a.rows.rows;
  for (int64_t t = first; t < end; ++t) write_row(a, t);
}

}  // namespace

int32_t run(ts_context* context, const ts_latent_write_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent == 0 || width_of(a.rows) != a.layer->head_dim || a.slots.count != a.rows.rows) return TS_BAD_SHAPE;
  for (int64_t t = 0; t < a.slots.count; ++t)
    if (a.slots.data[t] < 0 || a.slots.data[t] / TS_PAGE_TOKENS >= a.layer->num_pages) return TS_BAD_INDEX;
  const int64_t tasks = (a.rows.rows + kTokensPerTask - 1) / kTokensPerTask;
  if (tasks > 1) {
    share_tasks<write_task>(context, tasks, a);
  } else if (tasks == 1) {
    write_task(a, 0);
  }
  return TS_OK;
}

}  // namespace twostroke
