// Computes one tile for a block's rows that share a KV head, by the kind of K and V: scores, softmax, sums.
#pragma once
#include "twostroke/attention/latent.h"

namespace twostroke {

constexpr int64_t kByteBlockRows = 4;  // up to this many rows, widening K and V to words takes longer than it saves

// Used where products of words take fewer instructions than those of bytes (kWordProducts).
template <typename Element>
void run_word_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial);

// Computes a bf16 tile on matrix registers. Only levels with matrix registers have it.
inline void run_matrix_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial);

template <typename Element>
void run_float_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim, value_dim = job->layer->value_dim, rows = block.rows;
  const int64_t padded = job->key_padded, value_padded = job->value_padded;
  const Workspace& work = block.work;
  const TileView<Element> keys = view_of<Element>(tile, 0, TS_PAGE_TOKENS);
  const TileView<Element> values = view_of<Element>(tile, layout.key_bytes, value_step<Element>(layout));
  const bool thin = rows <= kThinBlockRows && dim % kLanes == 0 && value_dim % kLanes == 0;
  if (thin) {
    score_rows<Element, kThinRows, kThinVectors>(head.q, padded, rows, keys, tile.pages, dim, work.scores);
  } else {
    widen_keys(keys, tile.pages, dim, work.keys);
    score_block(job, block, head, tile);
  }
  if (adjusts_scores(job)) adjust_scores(job, block, head.kv_head, tile, 0, rows, work.scores);
  soften(work.scores, tile.spans, rows, partial, work.rescale, work.found);
  if (thin) {
    add_values<Element, kThinRows, kThinVectors>(block, tile, values, value_dim, partial.sum, value_padded);
  } else {
    widen_values(values, tile.first, tile.last, value_dim, value_padded, work.values);
    add_block(job, block, tile, partial);
  }
}

template <typename Element>
void run_integer_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  if constexpr (kWordProducts) {
    if (block.rows > kByteBlockRows) return run_word_tile<Element>(job, block, head, tile, partial);
  }
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim, rows = block.rows;
  const Workspace& work = block.work;
  const TileView<Element> keys = view_of<Element>(tile, 0, kQuad * TS_PAGE_TOKENS);
  const TileView<Element> values = view_of<Element>(tile, layout.key_bytes, kQuad * layout.value_row_bytes);
  load_scales(job, work.integers, tile);
  integer_scores(head.integers, rows, keys, tile.pages, dim, query_columns(job->key_padded), work.integers.key_scales, work.scores);
  if (adjusts_scores(job)) adjust_scores(job, block, head.kv_head, tile, 0, rows, work.scores);
  find_peaks(work.scores, tile.spans, rows, work.found);
  raise_peaks(partial, rows, work.found, work.rescale);
  scale_weights(tile.spans, rows, partial, work.integers, work.found);
  digits_of_weights<Element>(work.scores, tile.spans, rows, partial, work.rescale, work.integers);
  integer_values(work.integers, rows, work.rescale, values, tile.first, tile.last, job->value_padded, partial.sum);
}

inline AttentionWay attention_way(int32_t kv_kind, bool latent, bool matrix) {
  if (latent) return latent_way(kv_kind);
  if constexpr (kLevel.matrix_registers) {
    if (matrix) return {"run_matrix_tile", run_matrix_tile};
  }
  switch (kv_kind) {
    case TS_KV_F32: return {"run_float_tile<float>", run_float_tile<float>};
    case TS_KV_BF16: return {"run_float_tile<Bf16Pair>", run_float_tile<Bf16Pair>};
    case TS_KV_INT8: return {"run_integer_tile<WholeByte>", run_integer_tile<WholeByte>};
    default: return {"run_integer_tile<Nibbles>", run_integer_tile<Nibbles>};
  }
}

}  // namespace twostroke

#if defined(TS_LEVEL_AVX2)
#include "twostroke/x86/attention_words.h"
#elif defined(TS_LEVEL_AMX)
#include "twostroke/x86/attention_matrix.h"
#endif
