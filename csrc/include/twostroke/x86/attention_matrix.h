// Attention on matrix registers (AMX bf16). attention/matrix.h defines how its numbers are stored.
#pragma once
#include "twostroke/attention/tile_run.h"

namespace twostroke {

// Registers 0 to 3 hold results, 4 queries, 5 K, 6 weights of one page, and 7 V of one page. Fewer rows take less time.
struct alignas(64) AttentionTileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 32, 64};
  uint8_t rows[16] = {};

  explicit AttentionTileConfig(int64_t block_rows) {
    for (int i = 0; i < 7; ++i) rows[i] = static_cast<uint8_t>(block_rows < 16 ? block_rows : 16);
    rows[5] = 16;
    rows[7] = TS_PAGE_TOKENS / 2;
  }
};

inline void matrix_attention_begin(int64_t rows) {
  const AttentionTileConfig config(rows);
  _tile_loadconfig(&config);
}

inline void matrix_attention_end() { _tile_release(); }

// Splits 16 numbers into kParts bf16 numbers each, with `step` elements from one part to the next.
template <int kParts>
TS_VECTOR_INLINE void split(__m512 x, uint16_t* to, int64_t step) {
  TS_EVERY
  for (int part = 0; part < kParts; ++part, to += step) {
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
    x = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
  }
}

// Splits (rows, dim) float32 into (blocks of 16 rows, chunks of 32 dimensions, kQueryParts, 16, 32) bf16.
inline void split_queries(const float* from, int64_t rows, int64_t dim, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      uint16_t* tile = to + (r / 16 * (dim / kChunk) + d / kChunk) * kQueryParts * kQueryTile;
      split<kQueryParts>(_mm512_loadu_ps(from + r * dim + d), tile + r % 16 * kChunk + d % kChunk, kQueryTile);
    }
  }
}

// Splits (rows, kTile) float32 into (blocks of 16 rows, pages, kWeightParts, 16, 16) bf16.
inline void split_weights(const float* from, int64_t rows, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r) {
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) {
      uint16_t* tile = to + (r / 16 * kTilePages + p) * kWeightParts * kWeightTile;
      split<kWeightParts>(_mm512_loadu_ps(from + r * kTile + p * kLanes), tile + r % 16 * TS_PAGE_TOKENS, kWeightTile);
    }
  }
}

// This takes a page's V of positions [first, last) alone. Other positions may contain anything, and 0 * NaN would not be 0.
inline void keep_positions(const Bf16Pair* from, int first, int last, int64_t dim, Bf16Pair* to) {
  for (int t = 0; t < TS_PAGE_TOKENS; t += 2, to += dim) {
    const uint32_t low = t >= first && t < last ? 0xffffu : 0u, high = t + 1 >= first && t + 1 < last ? 0xffff0000u : 0u;
    const __m512i mask = _mm512_set1_epi32(static_cast<int32_t>(low | high));
    for (int64_t d = 0; d < dim; d += kLanes) {
      const __m512i seen = (low | high) != 0 ? _mm512_loadu_si512(from + t / 2 * dim + d) : _mm512_setzero_si512();
      _mm512_storeu_si512(to + d, _mm512_and_si512(seen, mask));
    }
  }
}

// Sets scores (rows, kTile) of `pages` pages to queries times K. scores has room for whole blocks of 16 rows. moment() is called for each
// tile of K while the first rows are multiplied; it fetches a part of what comes next.
template <class Moment>
void matrix_scores(const uint16_t* queries, const TileView<Bf16Pair>& keys, int pages, int64_t rows, int64_t dim, float* scores,
                   const Moment& moment) {
  const int64_t chunks = dim / kChunk;
  for (int64_t r = 0; r < rows; r += 16, scores += 16 * kTile) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t c = 0; c < chunks; ++c, queries += kQueryParts * kQueryTile) {
#define TS_SCORE(PAGE)                                                                    \
  if (PAGE < pages) {                                                                     \
    if (r == 0) moment();                                                                 \
    _tile_loadd(5, keys.pages[PAGE] + c * kChunk / 2 * TS_PAGE_TOKENS, 4 * TS_PAGE_TOKENS); \
    _tile_loadd(4, queries, 2 * kChunk);                                                  \
    _tile_dpbf16ps(PAGE, 4, 5);                                                           \
    _tile_loadd(4, queries + kQueryTile, 2 * kChunk);                                     \
    _tile_dpbf16ps(PAGE, 4, 5);                                                           \
    _tile_loadd(4, queries + 2 * kQueryTile, 2 * kChunk);                                 \
    _tile_dpbf16ps(PAGE, 4, 5);                                                           \
  }
      TS_SCORE(0)
      TS_SCORE(1)
      TS_SCORE(2)
      TS_SCORE(3)
#undef TS_SCORE
    }
    _tile_stored(0, scores, kTile * 4);
    _tile_stored(1, scores + 16, kTile * 4);
    _tile_stored(2, scores + 32, kTile * 4);
    _tile_stored(3, scores + 48, kTile * 4);
  }
}

// Adds one block's weights times V to 16 kCount columns of sums (16 rows, dim).
template <int kCount, class Moment>
TS_VECTOR_INLINE void value_block(const uint16_t* weights, const TileView<Bf16Pair>& values, int64_t from, float* sums, int64_t dim,
                                  const Moment& moment) {
#define TS_EACH(ACT)         \
  ACT(0)                     \
  if (kCount > 1) { ACT(1) } \
  if (kCount > 2) { ACT(2) } \
  if (kCount > 3) { ACT(3) }
#define TS_LOAD(V) _tile_loadd(V, sums + 16 * V, dim * 4);
#define TS_STORE(V) _tile_stored(V, sums + 16 * V, dim * 4);
#define TS_ADD(V)                                   \
  _tile_loadd(7, values.pages[p] + from + 16 * V, dim * 4); \
  _tile_dpbf16ps(V, 6, 7);
  TS_EACH(TS_LOAD)
  for (int p = 0; p < kTilePages; ++p) {
    for (int part = 0; part < kWeightParts; ++part, weights += kWeightTile) {
      moment();
      _tile_loadd(6, weights, 2 * TS_PAGE_TOKENS);
      TS_EACH(TS_ADD)
    }
  }
  TS_EACH(TS_STORE)
#undef TS_ADD
#undef TS_STORE
#undef TS_LOAD
#undef TS_EACH
}

// Adds weights times V of all four pages to sums (rows, dim), which has room for whole blocks of 16 rows.
template <class Moment>
void matrix_values(const uint16_t* weights, const TileView<Bf16Pair>& values, int64_t rows, int64_t dim, float* sums,
                   const Moment& moment) {
  for (int64_t r = 0; r < rows; r += 16, weights += kTilePages * kWeightParts * kWeightTile, sums += 16 * dim) {
    const auto at_first = [&] {
      if (r == 0) moment();
    };
    int64_t d = 0;
    for (; d + 4 * kLanes <= dim; d += 4 * kLanes) value_block<4>(weights, values, d, sums + d, dim, at_first);
    for (; d < dim; d += kLanes) value_block<1>(weights, values, d, sums + d, dim, at_first);
  }
}

// The number of rows that go through all stages of a tile together. Their values between two stages then stay in the first-level cache.
constexpr int64_t kMatrixTurnRows = 16;

// V of the positions that a row or a block sees. Pages that it sees in part are copied to `room`, which holds a tile of V.
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

// Adds weights times V where rows may not share V.
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

inline void run_matrix_tile(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim;
  const Workspace& work = block.work;
  const TileView<Bf16Pair> keys = view_of<Bf16Pair>(tile, 0, TS_PAGE_TOKENS);
  const TileView<Bf16Pair> stored = view_of<Bf16Pair>(tile, layout.key_bytes, value_step<Bf16Pair>(layout));
  const TileView<Bf16Pair> values = seen_values(stored, {tile.first, tile.last}, dim, reinterpret_cast<Bf16Pair*>(work.values));
  const bool shared = may_share(tile, block.rows, values, dim);
  // The lines that the next tile reads are fetched a few at a time. All at once they would fill the line buffers that this tile's loads
  // need.
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

}  // namespace twostroke
