// attention over pages of f32 and bf16: fused float32 products, in the order of dimensions for scores and of positions for sums.
// Knows: attend.h, the page layout. Must not know: batches.
#include "twostroke/cuda/attend.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, query, kMostDim);

struct FloatPage {
  const uint8_t *keys, *values;
  int64_t value_dim;
  bool pairs;  // of bf16

  float key(int64_t d, int64_t offset) const {
    if (!pairs) return reinterpret_cast<const float*>(keys)[d * TS_PAGE_TOKENS + offset];
    return widen(reinterpret_cast<const uint16_t*>(keys)[(d / 2 * TS_PAGE_TOKENS + offset) * 2 + d % 2]);
  }
  float value(int64_t d, int64_t offset) const {
    if (!pairs) return reinterpret_cast<const float*>(values)[offset * value_dim + d];
    const int64_t even = (value_dim + 1) / 2 * 2;
    return widen(reinterpret_cast<const uint16_t*>(values)[(offset / 2 * even + d) * 2 + offset % 2]);
  }
};

TS_DEVICE_INLINE FloatPage float_page(const AttentionArgs& args, const QueryRow& row, int64_t position) {
  const KVLayout layout(&args.layer);
  uint8_t* keys = layout.keys(row.pages[position / TS_PAGE_TOKENS], row.kv_head);
  return {keys, layout.values(keys), args.layer.value_dim, args.layer.kind == TS_KV_BF16};
}

TS_KERNEL(attention_float, AttentionArgs) {
  const QueryRow row = query_row(args);
  const int64_t dim = args.layer.head_dim;
  const int32_t thread = thread_index();
  const float scale = args.scale * kLog2E;
  const float* q = args.q + row.token * args.q_stride + row.head * dim;
  for (int64_t d = thread; d < dim; d += kGroupThreads) query[d] = q[d] * scale;
  barrier();
  const auto score = [&](int64_t position) {
    const FloatPage page = float_page(args, row, position);
    float sum = 0.0f;
    for (int64_t d = 0; d < dim; ++d) sum = fma(query[d], page.key(d, position % TS_PAGE_TOKENS), sum);
    return adjusted(args, row, position, sum);
  };
  const auto value = [&](int64_t position, int64_t d) { return float_page(args, row, position).value(d, position % TS_PAGE_TOKENS); };
  each_float_tile(args, row, score, value);
}

}  // namespace cuda
}  // namespace twostroke
