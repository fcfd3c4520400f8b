// kv_write and attention. Slots and page tables are checked on the host, where the step was written.
// Knows: ops' operands, kernels' arguments. Must not know: products.
#include "twostroke/cuda/launch.h"
#include "twostroke/kv_page.h"

namespace twostroke {
namespace cuda {
namespace {

int32_t check_pages(const ts_attention_args& a) {
  const ts_sequences& s = a.batch;
  if (s.count > 0 && s.row_starts[s.count] != a.q.rows) return TS_BAD_INDEX;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t rows = static_cast<int64_t>(s.row_starts[i + 1]) - s.row_starts[i], end = s.context_tokens[i];
    const int64_t pages = divide_up(end, TS_PAGE_TOKENS);
    if (s.row_starts[i] < 0 || rows < 0 || rows > end || pages > s.max_pages) return TS_BAD_SHAPE;
    // Pages behind the window were given back, and their entries say nothing.
    const int64_t seen = first_seen(a.window, end - rows);
    for (int64_t p = seen / TS_PAGE_TOKENS; p < pages; ++p) {
      const int32_t page = s.page_table[i * s.max_pages + p];
      if (page < 0 || page >= a.layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

int32_t check_attention(const ts_attention_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent != 0 || a.out.rows != a.q.rows || a.out.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim || a.q.heads % a.layer->kv_heads != 0) return TS_BAD_SHAPE;
  if (a.q.dim > kMostDim || a.out.dim > kMostDim || a.window <= INT32_MIN || a.window > INT32_MAX || a.ahead < 0 || a.ahead > INT32_MAX) return TS_BAD_SHAPE;
  if (!(a.soft_cap >= 0.0)) return TS_BAD_VALUE;
  const ts_vector vectors[] = {a.sinks, a.slopes};
  for (const ts_vector& each : vectors)
    if (each.data != nullptr && each.length != a.q.heads) return TS_BAD_SHAPE;
  return TS_OK;
}

}  // namespace

int32_t launch(ts_context& device, const ts_kv_write_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  if (a.layer->latent != 0 || a.k.rows != a.v.rows || a.slots.count != a.k.rows) return TS_BAD_SHAPE;
  if (a.k.heads != a.layer->kv_heads || a.k.dim != a.layer->head_dim) return TS_BAD_SHAPE;
  if (a.v.heads != a.layer->kv_heads || a.v.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  const int32_t* slots = mirrored(device, a.slots.data, a.slots.count);
  if (slots == nullptr) return TS_BAD_POINTER;
  for (int64_t t = 0; t < a.slots.count; ++t)
    if (a.slots.data[t] < 0 || a.slots.data[t] / TS_PAGE_TOKENS >= a.layer->num_pages) return TS_BAD_INDEX;
  const KVWriteArgs args = {*a.layer, a.k.data, a.v.data, slots, a.k.stride, a.v.stride};
  return start(device, kKernel_kv_write, a.k.rows * a.k.heads, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_attention_args& a) {
  int32_t status = check_attention(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  const ts_sequences& s = a.batch;
  const int32_t* starts = mirrored(device, s.row_starts, s.count + 1);
  const int32_t* contexts = mirrored(device, s.context_tokens, s.count);
  const int32_t* pages = mirrored(device, s.page_table, s.count * s.max_pages);
  if (starts == nullptr || contexts == nullptr || pages == nullptr) return TS_BAD_POINTER;
  status = check_pages(a);
  if (status != TS_OK) return status;
  const AttentionArgs args = {*a.layer,     a.out.data,  a.q.data,       a.sinks.data, a.slopes.data, starts,
                              contexts,     pages,       a.q.stride,     a.out.stride, a.q.heads,     s.count,
                              s.max_pages,  static_cast<float>(a.scale), static_cast<float>(a.soft_cap), static_cast<int32_t>(a.window),
                              static_cast<int32_t>(a.ahead)};
  const KernelNumber kernel = has_scales(a.layer->kind) ? kKernel_attention_whole : kKernel_attention_float;
  return start(device, kernel, a.q.rows * a.q.heads, kGroupThreads, &args);
}

}  // namespace cuda
}  // namespace twostroke
