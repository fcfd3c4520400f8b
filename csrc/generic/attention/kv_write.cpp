// ts_kv_write: writes K and V of new positions into their pages, rounded as in ops/attention/kv_write.py. A token writes its own bytes
// alone.
#include "twostroke/context.h"
#include "twostroke/attention/kv_row.h"

namespace twostroke {
namespace {

struct WriteJob {
  const ts_kv_layer* layer;
  const float* k;
  const float* v;
  int64_t k_stride, v_stride, tokens;
  const int32_t* slots;
};

// Writes V of the position at `offset`. A pair is two positions; the number of dimensions is even.
void write_values_bf16(const float* v, int64_t dim, int64_t offset, Bf16Pair* values) {
  const int64_t even = (dim + 1) / 2 * 2;
  values += offset / 2 * even;
  for (int64_t d = 0; d < even; ++d) convert(d < dim ? v[d] : 0.0f, offset % 2 == 0 ? &values[d].first : &values[d].second);
}

// The numbers of one dimension of four positions lie together.
void write_values_int8(const Rounding& rounding, const float* v, int64_t dim, int64_t offset, uint8_t* values) {
  uint8_t* to = values + offset / kQuad * dim * kQuad + offset % kQuad;
  for (int64_t d = 0; d < dim; ++d) to[d * kQuad] = static_cast<uint8_t>(rounding(v[d]));
}

// A byte holds two dimensions that are 16 apart.
void write_values_int4(const Rounding& rounding, const float* v, int64_t dim, int64_t offset, uint8_t* values) {
  const auto number = [&](int64_t d) { return rounding(v[d]); };
  const int64_t blocks = (dim + 31) / 32;
  uint8_t* to = values + offset / kQuad * blocks * 64 + offset % kQuad;
  for (int64_t block = 0; block < blocks; ++block, to += 64)
    for (int64_t i = 0; i < 16; ++i) to[i * kQuad] = both_nibbles(number, dim, 32 * block + i, 32 * block + i + 16);
}

void write_head(const WriteJob* job, const KVLayout& layout, int64_t t, int64_t h) {
  const int64_t page = job->slots[t] / TS_PAGE_TOKENS, offset = job->slots[t] % TS_PAGE_TOKENS;
  const int64_t dim = job->layer->head_dim, value_dim = job->layer->value_dim;
  const float* k = job->k + t * job->k_stride + h * dim;
  const float* v = job->v + t * job->v_stride + h * value_dim;
  uint8_t* keys = layout.keys(page, h);
  uint8_t* values = layout.values(keys);
  if (job->layer->kind == TS_KV_F32) {
    write_keys_f32(k, dim, offset, keys);
    memcpy(reinterpret_cast<float*>(values) + offset * value_dim, v, static_cast<size_t>(value_dim) * 4);
    return;
  }
  if (job->layer->kind == TS_KV_BF16) {
    write_keys_bf16(k, dim, offset, keys);
    return write_values_bf16(v, value_dim, offset, reinterpret_cast<Bf16Pair*>(values));
  }
  const bool nibbles = job->layer->kind == TS_KV_INT4;
  const Rounding of_k(k, dim, nibbles, layout.key_scales(keys) + 2 * offset), of_v(v, value_dim, nibbles, layout.value_scales(keys) + 2 * offset);
  const auto number = [&](int64_t d) { return of_k(k[d]); };
  if (nibbles) {
    write_keys_int4(number, dim, offset, keys);
    write_values_int4(of_v, v, value_dim, offset, values);
  } else {
    write_keys_int8(number, dim, offset, keys);
    write_values_int8(of_v, v, value_dim, offset, values);
  }
}

// Threads divide heads, because tokens of one page share cache lines of K. Two threads in one head's page would pass these lines to and
// fro.
constexpr int64_t kTokensPerTask = 64;
constexpr int64_t kSerialTokens = 4;

void write_task(void* opaque, int64_t index, int32_t) {
  const WriteJob* job = static_cast<const WriteJob*>(opaque);
  const KVLayout layout(job->layer);
  const int64_t blocks = (job->tokens + kTokensPerTask - 1) / kTokensPerTask;
  const int64_t head = index / blocks, first = index % blocks * kTokensPerTask;
  const int64_t last = first + kTokensPerTask < job->tokens ? first + kTokensPerTask : job->tokens;
  for (int64_t t = first; t < last; ++t) write_head(job, layout, t, head);
}

void write_all(ts_context* context, WriteJob& job) {
  const int64_t blocks = (job.tokens + kTokensPerTask - 1) / kTokensPerTask, tasks = blocks * job.layer->kv_heads;
  if (job.tokens > kSerialTokens) return ts_parallel(context, tasks, write_task, &job);
  for (int64_t i = 0; i < tasks; ++i) write_task(&job, i, 0);
}

}  // namespace
}  // namespace twostroke

int32_t ts_kv_write(ts_context* context, const ts_kv_layer* layer, const float* k, int64_t k_stride, const float* v, int64_t v_stride,
                    const int32_t* slots, int64_t tokens) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = twostroke::check_layer(layer);
  if (status != TS_OK) return status;
  if (tokens < 0 || k_stride < static_cast<int64_t>(layer->kv_heads) * layer->head_dim) return TS_BAD_SHAPE;
  if (v_stride < static_cast<int64_t>(layer->kv_heads) * layer->value_dim) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (k == nullptr || v == nullptr || slots == nullptr) return TS_BAD_POINTER;
  for (int64_t t = 0; t < tokens; ++t)
    if (slots[t] < 0 || slots[t] / TS_PAGE_TOKENS >= layer->num_pages) return TS_BAD_INDEX;
  twostroke::WriteJob job = {layer, k, v, k_stride, v_stride, tokens, slots};
  twostroke::write_all(context, job);
  return TS_OK;
}
