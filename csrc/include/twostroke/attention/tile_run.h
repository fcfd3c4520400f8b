// One tile of a block's rows that share a KV head, by the kind of K and V: scores, softmax, sums.
#pragma once
#include "twostroke/attention/latent.h"

namespace twostroke {

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

#if defined(TS_WORD_PRODUCTS)
constexpr int64_t kByteBlockRows = 4;  // up to here widening K and V to words takes longer than it saves

template <typename Element>
void run_word_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = stored_dim<Element>(job->layer->head_dim), value_padded = job->value_padded, rows = block.rows;
  const Workspace& work = block.work;
  int16_t *keys = reinterpret_cast<int16_t*>(work.keys), *values = reinterpret_cast<int16_t*>(work.values);
  load_scales(job, work.integers, tile);
  words_of_keys(view_of<Element>(tile, 0, kQuad * TS_PAGE_TOKENS), tile.pages, dim, keys);
  word_scores(head.integers, rows, query_columns(job->key_padded), keys, tile.pages, dim, work.integers.key_scales, work.scores);
  if (adjusts_scores(job)) adjust_scores(job, block, head.kv_head, tile, 0, rows, work.scores);
  find_peaks(work.scores, tile.spans, rows, work.found);
  raise_peaks(partial, rows, work.found, work.rescale);
  scale_weights(tile.spans, rows, partial, work.integers, work.found);
  words_of_weights(work.scores, tile.spans, rows, partial, work.rescale, work.integers);
  words_of_values(view_of<Element>(tile, layout.key_bytes, kQuad * layout.value_row_bytes), tile.first, tile.last, value_padded, values);
  word_values(work.integers, rows, work.rescale, values, tile.first, tile.last, value_padded, partial.sum);
}
#endif

template <typename Element>
void run_integer_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
#if defined(TS_WORD_PRODUCTS)
  if (block.rows > kByteBlockRows) return run_word_tile<Element>(job, block, head, tile, partial);
#endif
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

#if defined(TS_LEVEL_AMX)
// Rows that go through all stages of a tile at once: what stands between the stages stays in the first-level cache.
constexpr int64_t kMatrixTurnRows = 16;

// V of the positions that a row or a block sees; pages that it sees in part are copied to `room`, a tile of V.
inline TileView<Bf16Pair> seen_values(TileView<Bf16Pair> values, Span seen, int64_t dim, Bf16Pair* room) {
  for (int p = 0; p < kTilePages; ++p) {
    const int start = p * TS_PAGE_TOKENS, end = start + TS_PAGE_TOKENS;
    if (seen.begin <= start && end <= seen.end) continue;
    Bf16Pair* kept = room + start / 2 * dim;
    keep_positions(values.pages[p], seen.begin - start, seen.end - start, dim, kept);
    values.pages[p] = kept;
  }
  return values;
}

// Weights times V where rows may not share it.
inline void add_rows_alone(const Block& block, const Span* spans, int64_t rows, const TileView<Bf16Pair>& values, int64_t dim, float* sums) {
  const Workspace& work = block.work;
  Bf16Pair* room = reinterpret_cast<Bf16Pair*>(work.values) + kTile / 2 * dim;
  matrix_attention_begin(1);
  for (int64_t r = 0; r < rows; ++r) {
    if (spans[r].empty()) continue;
    split_weights(work.scores + r * kTile, 1, work.parts);
    matrix_values(work.parts, seen_values(values, spans[r], dim, room), 1, dim, sums + r * dim, [] {});
  }
  matrix_attention_begin(block.rows);
}

// On matrix registers, for bf16.
inline void run_matrix_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim;
  const Workspace& work = block.work;
  const TileView<Bf16Pair> keys = view_of<Bf16Pair>(tile, 0, TS_PAGE_TOKENS);
  const TileView<Bf16Pair> stored = view_of<Bf16Pair>(tile, layout.key_bytes, value_step<Bf16Pair>(layout));
  const TileView<Bf16Pair> values = seen_values(stored, {tile.first, tile.last}, dim, reinterpret_cast<Bf16Pair*>(work.values));
  const bool shared = may_share(tile, block.rows, values, dim);
  // What the next tile reads is fetched bit by bit: all at once would fill the line buffers that this one's loads wait for.
  const int64_t moments = dim / kChunk * kTilePages + (dim + 4 * kLanes - 1) / (4 * kLanes) * kTilePages * kWeightParts;
  int64_t done = 0;
  const auto moment = [&] { prefetch_part(tile, layout.head_bytes, done < moments ? done : moments - 1, moments), ++done; };
  for (int64_t r = 0; r < block.rows; r += kMatrixTurnRows) {
    const int64_t rows = smaller(kMatrixTurnRows, block.rows - r);
    const auto first = [&] {
      if (r == 0) moment();
    };
    const Partial part = {partial.sum + r * dim, partial.peak + r, partial.total + r * kLanes};
    matrix_scores(head.parts + r * dim * kQueryParts, keys, tile.pages, rows, dim, work.scores, first);
    if (adjusts_scores(job)) adjust_scores(job, block, head.kv_head, tile, r, rows, work.scores);
    soften(work.scores, tile.spans + r, rows, part, work.rescale, work.found);
    rescale_rows(part.sum, work.rescale, rows, dim);
    if (!shared) {
      add_rows_alone(block, tile.spans + r, rows, values, dim, part.sum);
      continue;
    }
    split_weights(work.scores, rows, work.parts);
    matrix_values(work.parts, values, rows, dim, part.sum, first);
  }
}
#endif

inline AttentionWay attention_way(int32_t kv_kind, bool latent, bool matrix) {
  if (latent) return latent_way(kv_kind);
#if defined(TS_LEVEL_AMX)
  if (matrix) return {"run_matrix_tile", run_matrix_tile};
#else
  (void)matrix;
#endif
  switch (kv_kind) {
    case TS_KV_F32: return {"run_float_tile<float>", run_float_tile<float>};
    case TS_KV_BF16: return {"run_float_tile<Bf16Pair>", run_float_tile<Bf16Pair>};
    case TS_KV_INT8: return {"run_integer_tile<WholeByte>", run_integer_tile<WholeByte>};
    default: return {"run_integer_tile<Nibbles>", run_integer_tile<Nibbles>};
  }
}

}  // namespace twostroke
