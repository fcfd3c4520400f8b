// attention over pages of int8 and int4: both products are sums of whole numbers (ADR 13), so their order is free. A row's query is
// rounded to bytes, its weights times V's scales to 15 bits within each tile, as attention/integer.h says.
// Knows: attend.h, the page layout. Must not know: batches.
#include "twostroke/cuda/attend.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, scaled_query, kMostDim);
TS_SHARED(int32_t, query_quads, kMostDim / kQuad);  // four bytes each
TS_SHARED(float, value_scales, kTile);
TS_SHARED(int32_t, whole_weights, kTile);

constexpr float kLargestByte = 127.0f, kLargestWhole = 16383.0f;
constexpr float kSmallestScaled = 1.9259299e-34f;  // 2^-112, whose inverse is still finite

// number = whole * scale; largest becomes largest_whole; NaN or infinity makes every number NaN.
struct Scaling {
  float scale, inverse;

  Scaling(float largest, float largest_whole) {
    const float kept = larger(kSmallestScaled, largest);
    scale = kept * (1.0f / largest_whole) + (kept - kept);
    inverse = largest_whole / kept;
  }
};

TS_DEVICE_INLINE int32_t rounded(float number, float inverse) {
  return static_cast<int16_t>(bits_of(fma(number, inverse, kRounder)) & 0xffffu);
}

struct WholePage {
  const uint8_t *keys, *values;
  const uint16_t *key_scales, *value_scales;
  int64_t value_dim;
  bool nibbles;

  // Four (int4: eight) dimensions of one position's K, as they are stored.
  uint32_t key_word(int64_t word, int64_t offset) const {
    return reinterpret_cast<const uint32_t*>(keys)[word * TS_PAGE_TOKENS + offset];
  }
  int32_t value(int64_t d, int64_t offset) const {
    if (!nibbles) return static_cast<int8_t>(values[offset / kQuad * value_dim * kQuad + d * kQuad + offset % kQuad]);
    const int64_t blocks = (value_dim + 31) / 32;
    const uint8_t both = values[(offset / kQuad * blocks + d / 32) * 64 + d % 16 * kQuad + offset % kQuad];
    return (d % 32 < 16 ? both & 15 : both >> 4) - 8;
  }
};

TS_DEVICE_INLINE WholePage whole_page(const AttentionArgs& args, const QueryRow& row, int64_t position) {
  const KVLayout layout(&args.layer);
  uint8_t* keys = layout.keys(row.pages[position / TS_PAGE_TOKENS], row.kv_head);
  return {keys,
          layout.values(keys),
          reinterpret_cast<const uint16_t*>(layout.key_scales(keys)),
          reinterpret_cast<const uint16_t*>(layout.value_scales(keys)),
          args.layer.value_dim,
          args.layer.kind == TS_KV_INT4};
}

// The row's query as bytes: their scale, and what undoes the zeros that K is stored with.
struct Query {
  float scale;
  int32_t start;
};

TS_DEVICE_INLINE Query rounded_query(const AttentionArgs& args, const QueryRow& row, int64_t quads) {
  const int64_t dim = args.layer.head_dim;
  const float scale = args.scale * kLog2E;
  const float* q = args.q + row.token * args.q_stride + row.head * dim;
  for (int64_t d = thread_index(); d < quads * kQuad; d += kGroupThreads) scaled_query[d] = d < dim ? q[d] * scale : 0.0f;
  barrier();
  uint32_t most = 0;
  for (int64_t d = 0; d < dim; ++d) {
    const uint32_t bits = bits_of(scaled_query[d]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  const Scaling scaling(float_of(most), kLargestByte);
  for (int64_t quad = thread_index(); quad < quads; quad += kGroupThreads) {
    uint32_t bytes = 0;
    for (int i = 0; i < kQuad; ++i)
      bytes |= (static_cast<uint32_t>(rounded(scaled_query[quad * kQuad + i], scaling.inverse)) & 0xffu) << (8 * i);
    query_quads[quad] = static_cast<int32_t>(bytes);
  }
  barrier();
  int32_t sum = 0;
  for (int64_t quad = 0; quad < quads; ++quad) sum = dot4(0x01010101u, query_quads[quad], sum);
  return {scaling.scale, args.layer.kind == TS_KV_INT8 ? -128 * sum : -8 * sum};
}

TS_DEVICE_INLINE int32_t score_of(const WholePage& page, int64_t offset, int64_t quads, int32_t sum) {
  if (!page.nibbles) {
    for (int64_t quad = 0; quad < quads; ++quad) sum = dot4(page.key_word(quad, offset), query_quads[quad], sum);
    return sum;
  }
  for (int64_t pair = 0; pair < quads / 2; ++pair) {
    const uint32_t word = page.key_word(pair, offset);
    sum = dot4(word & 0x0f0f0f0fu, query_quads[2 * pair], sum);
    sum = dot4(word >> 4 & 0x0f0f0f0fu, query_quads[2 * pair + 1], sum);
  }
  return sum;
}

TS_KERNEL(attention_whole, AttentionArgs) {
  const QueryRow row = query_row(args);
  const int64_t dim = args.layer.head_dim, quads = args.layer.kind == TS_KV_INT8 ? (dim + 3) / 4 : (dim + 7) / 8 * 2;
  const int32_t thread = thread_index();
  const Query query = rounded_query(args, row, quads);
  each_tile(args, row, [&](int64_t start, int64_t first, int64_t last, Partial& own) {
    const bool seen = thread >= first && thread < last;
    const int64_t offset = (start + thread) % TS_PAGE_TOKENS;
    float score = kLowest, value_scale = 0.0f;
    if (seen) {
      const WholePage page = whole_page(args, row, start + thread);
      score = static_cast<float>(score_of(page, offset, quads, query.start)) * query.scale * widen(page.key_scales[offset]);
      score = adjusted(args, row, start + thread, score);
      value_scale = widen(page.value_scales[offset]);
    }
    tile_scores[thread] = score;
    value_scales[thread] = value_scale;
    barrier();
    float found;
    const float rescale = own.raise(first, last, &found);
    uint32_t most = 0;
    for (int64_t p = first; p < last; ++p) {
      const uint32_t bits = bits_of(value_scales[p]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
    const Scaling scaling(exp2_negative(found - own.peak) * float_of(most), kLargestWhole);
    const float weight = seen ? exp2_negative(score - own.peak) : 0.0f;
    tile_weights[thread] = weight;
    whole_weights[thread] = seen ? rounded(weight * value_scale, scaling.inverse) : 0;
    barrier();
    own.add_total(rescale);
    TS_EVERY_SUM
    for (int j = 0; j < kSums; ++j) {
      const int64_t d = thread + j * kGroupThreads;
      if (d >= args.layer.value_dim) continue;
      int32_t sum = 0;
      for (int64_t p = first; p < last; ++p)
        sum += whole_weights[p] * whole_page(args, row, start + p).value(d, (start + p) % TS_PAGE_TOKENS);
      own.sums[j] = fma(static_cast<float>(sum), scaling.scale, own.sums[j] * rescale);
    }
  });
}

}  // namespace cuda
}  // namespace twostroke
