// ts_kv_write: K and V of new positions into their pages; bf16 rounds to nearest, ties to even.
// Knows: the page layout. Must not know: attention, why these pages.
#include <string.h>

#include "twostroke/context.h"
#include "twostroke/kv_page.h"

namespace twostroke {
namespace {

struct WriteJob {
  const ts_kv_layer* layer;
  const float* k;
  const float* v;
  int64_t stride, tokens;
  const int32_t* slots;
};

inline void convert(float value, float* out) { *out = value; }

inline void convert(float value, uint16_t* out) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  *out = is_nan ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

template <typename Element>
void write_token(const WriteJob* job, int64_t t) {
  const KVView<Element> view = view_of<Element>(job->layer);
  const int64_t page = job->slots[t] / TS_PAGE_TOKENS, offset = job->slots[t] % TS_PAGE_TOKENS, dim = view.head_dim;
  for (int64_t h = 0; h < view.kv_heads; ++h) {
    const float* k = job->k + t * job->stride + h * dim;
    const float* v = job->v + t * job->stride + h * dim;
    Element* keys = view.keys(page, h) + offset;
    Element* values = view.values(page, h) + offset * dim;
    for (int64_t d = 0; d < dim; ++d) convert(k[d], keys + d * TS_PAGE_TOKENS);
    for (int64_t d = 0; d < dim; ++d) convert(v[d], values + d);
  }
}

constexpr int64_t kTokensPerTask = 4;

void write_task(void* opaque, int64_t index, int32_t) {
  const WriteJob* job = static_cast<const WriteJob*>(opaque);
  const int64_t first = index * kTokensPerTask;
  const int64_t last = first + kTokensPerTask < job->tokens ? first + kTokensPerTask : job->tokens;
  for (int64_t t = first; t < last; ++t) {
    if (job->layer->kind == TS_KV_F32) {
      write_token<float>(job, t);
    } else {
      write_token<uint16_t>(job, t);
    }
  }
}

}  // namespace
}  // namespace twostroke

int32_t ts_kv_write(ts_context* context, const ts_kv_layer* layer, const float* k, const float* v, int64_t kv_stride,
                    const int32_t* slots, int64_t tokens) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = twostroke::check_layer(layer);
  if (status != TS_OK) return status;
  if (tokens < 0 || kv_stride < static_cast<int64_t>(layer->kv_heads) * layer->head_dim) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (k == nullptr || v == nullptr || slots == nullptr) return TS_BAD_POINTER;
  for (int64_t t = 0; t < tokens; ++t)
    if (slots[t] < 0 || slots[t] / TS_PAGE_TOKENS >= layer->num_pages) return TS_BAD_INDEX;
  twostroke::WriteJob job = {layer, k, v, kv_stride, tokens, slots};
  ts_parallel(context, (tokens + twostroke::kTokensPerTask - 1) / twostroke::kTokensPerTask, twostroke::write_task, &job);
  return TS_OK;
}
