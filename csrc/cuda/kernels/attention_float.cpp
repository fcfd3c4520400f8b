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
  const int64_t dim = args.layer.head_dim, value_dim = args.layer.value_dim;
  const int32_t thread = thread_index();
  const float scale = args.scale * kLog2E;
  const float* q = args.q + row.token * args.q_stride + row.head * dim;
  for (int64_t d = thread; d < dim; d += kGroupThreads) query[d] = q[d] * scale;
  barrier();
  each_tile(args, row, [&](int64_t start, int64_t first, int64_t last, Partial& own) {
    const bool seen = thread >= first && thread < last;
    float score = kLowest;
    if (seen) {
      const FloatPage page = float_page(args, row, start + thread);
      score = 0.0f;
      for (int64_t d = 0; d < dim; ++d) score = fma(query[d], page.key(d, (start + thread) % TS_PAGE_TOKENS), score);
      score = adjusted(args, row, start + thread, score);
    }
    tile_scores[thread] = score;
    barrier();
    float found;
    const float rescale = own.raise(first, last, &found);
    tile_weights[thread] = seen ? exp2_negative(score - own.peak) : 0.0f;
    barrier();
    own.add_total(rescale);
    TS_EVERY_SUM
    for (int j = 0; j < kSums; ++j) {
      const int64_t d = thread + j * kGroupThreads;
      if (d >= value_dim) continue;
      float sum = own.sums[j] * rescale;
      for (int64_t p = first; p < last; ++p)
        sum = fma(tile_weights[p], float_page(args, row, start + p).value(d, (start + p) % TS_PAGE_TOKENS), sum);
      own.sums[j] = sum;
    }
  });
}

}  // namespace cuda
}  // namespace twostroke
