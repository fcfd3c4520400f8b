// One call of ts_attention as its tasks see it: the job, a thread's memory for a block of query rows, the tile of K and V at hand.
// Knows: page tables, the layout of pages. Must not know: arithmetic, the pool.
#pragma once
#include "twostroke/attention_matrix.h"
#include "twostroke/attention_rows.h"

namespace twostroke {

constexpr int64_t kBlockRows = 192;     // enough to pay for widening K and V once a block; a multiple of kWideRows
constexpr int64_t kThinBlockRows = 8;   // up to here K and V are widened on the way to the multiplier
constexpr int64_t kMaxGroup = 512;
constexpr int64_t kSegment = 512;       // positions; a multiple of kTile
constexpr int64_t kTasksPerThread = 3;  // below this a block is shared out by segments

struct AttentionJob {
  const ts_kv_layer* layer;
  const float* q;
  const int32_t *row_starts, *context_tokens, *page_table;
  float* out;
  int64_t q_stride, heads, sequences, page_table_stride, out_stride;
  float scale;
  int32_t window;
  int64_t group, tokens_per_block, padded_dim, capacity;  // capacity: rows of a block, a multiple of 16
  bool split;
  bool matrix;  // both products on matrix registers
  int64_t* task_starts;   // (sequences + 1,) first task of each sequence
  int64_t* merge_starts;  // the same for the merging tasks
  float* partials;        // one partial result a task, where split
  float* thread_scratch;
  int64_t thread_floats;
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t partial_floats(const AttentionJob* job) { return job->capacity * (job->padded_dim + 2); }

inline Partial partial_at(const AttentionJob* job, float* memory) {
  float* peak = memory + job->capacity * job->padded_dim;
  return {memory, peak, peak + job->capacity};
}

// One thread's memory for a block of rows. Every array begins at a cache line.
struct Block {
  float *q, *scores, *rescale, *found, *sums, *key_scales, *value_scales, *keys, *values;
  uint16_t *query_parts, *weight_parts;  // for matrix registers
  Partial whole, segment;
  int64_t rows, first_token, tokens, first_position, sequence, kv_head;

  Block(const AttentionJob* job, int32_t thread) {
    const int64_t capacity = job->capacity, dim = job->padded_dim;
    q = job->thread_scratch + thread * job->thread_floats;
    scores = q + capacity * dim;
    rescale = scores + capacity * kTile;
    found = rescale + capacity;
    sums = found + capacity;
    key_scales = sums + capacity;
    value_scales = key_scales + kTile;
    keys = value_scales + kTile;
    values = keys + kTile * dim;
    float* parts = values + kTile * dim;
    query_parts = reinterpret_cast<uint16_t*>(parts);
    weight_parts = query_parts + (job->matrix ? 2 * query_part_floats(capacity, dim) : 0);
    float* rest = parts + part_floats(job);
    whole = partial_at(job, rest);
    segment = partial_at(job, rest + partial_floats(job));
  }

  static int64_t part_floats(const AttentionJob* job) {
    return job->matrix ? query_part_floats(job->capacity, job->padded_dim) + weight_part_floats(job->capacity) : 0;
  }

  static int64_t floats(const AttentionJob* job) {
    return job->capacity * (job->padded_dim + kTile + 3) + 2 * kTile + 2 * kTile * job->padded_dim + part_floats(job) +
           2 * partial_floats(job);
  }
};

// One tile of a block's sequence: where K begins in each page.
struct Tile {
  int64_t start;
  int pages, first, last;  // positions [first, last) from the start are seen by some row
  uint8_t* keys[kTilePages];
  int64_t ahead[kTilePages];
  Span spans[kMaxGroup > kBlockRows ? kMaxGroup : kBlockRows];
};

inline int64_t first_seen(const AttentionJob* job, int64_t position) {
  return job->window > 0 ? larger(0, position - job->window + 1) : 0;
}

// Bytes from where K begins in page p of a tile to where it begins in that page of tile `tile`; behind this head's last comes the
// first of the next head, which is read after it. 0: there is none.
inline int64_t bytes_ahead(const AttentionJob* job, const Block& block, const uint8_t* keys, int64_t tile, int64_t p) {
  const int64_t end = block.first_position + block.tokens, tiles = divide_up(end, kTile);
  const bool same = tile < tiles;
  if (!same) tile += first_seen(job, block.first_position) / kTile - tiles;
  const int64_t page = tile * kTilePages + p, head = block.kv_head + (same ? 0 : 1);
  if (page * TS_PAGE_TOKENS >= end || head == job->layer->kv_heads) return 0;
  return KVLayout(job->layer).keys(job->page_table[block.sequence * job->page_table_stride + page], head) - keys;
}

inline void find_tile(const AttentionJob* job, const Block& block, int64_t start, Tile* tile) {
  const int64_t end = block.first_position + block.tokens;
  const KVLayout layout(job->layer);
  const int32_t* table = job->page_table + block.sequence * job->page_table_stride;
  tile->start = start;
  tile->pages = static_cast<int>(smaller(kTilePages, divide_up(end - start, TS_PAGE_TOKENS)));
  tile->first = kTile;
  tile->last = 0;
  for (int p = 0; p < tile->pages; ++p) {
    uint8_t* keys = layout.keys(table[start / TS_PAGE_TOKENS + p], block.kv_head);
    tile->keys[p] = keys;
    tile->ahead[p] = bytes_ahead(job, block, keys, start / kTile + 1, p);
  }
  for (int64_t t = 0; t < block.tokens; ++t) {
    const int64_t position = block.first_position + t;
    const Span span = {static_cast<int>(larger(first_seen(job, position) - start, 0)),
                       static_cast<int>(smaller(position + 1 - start, kTile))};
    for (int64_t g = 0; g < job->group; ++g) tile->spans[t * job->group + g] = span;
    if (span.empty()) continue;
    tile->first = span.begin < tile->first ? span.begin : tile->first;
    tile->last = span.end > tile->last ? span.end : tile->last;
  }
}

template <typename Element>
TileView<Element> view_of(const Tile& tile, int64_t offset, int64_t step) {
  TileView<Element> view = {};
  view.step = step;
  for (int p = 0; p < tile.pages; ++p) {
    view.pages[p] = reinterpret_cast<const Element*>(tile.keys[p] + offset);
    view.ahead[p] = tile.ahead[p];
  }
  return view;
}

// Elements from one row of V to the next.
template <typename Element>
int64_t value_step(const KVLayout& layout) {
  return layout.value_row_bytes * (kIsPair<Element> ? 2 : 1) / static_cast<int64_t>(sizeof(Element));
}

// A tile that was widened: K (dim, kTile), V (kTile, padded).
inline TileView<float> widened(const float* data, int64_t page_step, int64_t step) {
  TileView<float> view = {};
  view.step = step;
  for (int p = 0; p < kTilePages; ++p) view.pages[p] = data + p * page_step;
  return view;
}

inline void load_scales(const AttentionJob* job, const Block& block, const Tile& tile) {
  const KVLayout layout(job->layer);
  for (int p = 0; p < tile.pages; ++p) {
    uint8_t* scales = layout.key_scales(tile.keys[p]);
    prefetch_ahead(scales, tile.ahead[p]);
    uint16_t both[2 * kLanes];
    memcpy(both, scales, sizeof both);
    store(block.key_scales + p * kLanes, load_bf16(both));
    store(block.value_scales + p * kLanes, load_bf16(both + kLanes));
  }
}

// What some row of [r, r + count) sees of a tile.
inline Span seen_by(const Tile& tile, int64_t r, int64_t count) {
  Span seen = {kTile, 0};
  for (int64_t i = r; i < r + count; ++i) {
    if (tile.spans[i].empty()) continue;
    seen.begin = tile.spans[i].begin < seen.begin ? tile.spans[i].begin : seen.begin;
    seen.end = tile.spans[i].end > seen.end ? tile.spans[i].end : seen.end;
  }
  return seen;
}

// Part `part` of `parts` of the pages that the next tile reads.
inline void prefetch_part(const Tile& tile, int64_t head_bytes, int64_t part, int64_t parts) {
  for (int p = 0; p < tile.pages; ++p) {
    const int64_t end = head_bytes * (part + 1) / parts;
    for (int64_t at = head_bytes * part / parts / 64 * 64; at < end; at += 64) prefetch_ahead(tile.keys[p] + at, tile.ahead[p]);
  }
}

}  // namespace twostroke
