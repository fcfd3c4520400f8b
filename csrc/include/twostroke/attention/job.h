// One call of ts_attention as its tasks see it: the job, a thread's memory for a block of query rows, and the current tile of K and V.
#pragma once
#include <initializer_list>

#include "twostroke/attention/integer.h"
#include "twostroke/attention/matrix.h"
#include "twostroke/attention/places.h"
#include "twostroke/attention/rows.h"

namespace twostroke {

constexpr int64_t kBlockRows = 192;  // enough rows to pay for widening K and V once for a block; a multiple of kWideRows
// the same for rows of several hundred dimensions; with a widened tile they fit a second-level cache of 1 MiB
constexpr int64_t kLatentBlockRows = 96;
constexpr int64_t kThinBlockRows = 8;  // up to this many rows, K and V are widened on the way to the multiplier
constexpr int64_t kMostQueryHeads = 512;  // the most query heads of one KV head
constexpr int64_t kSegment = 512;  // positions of a segment; a multiple of kTile
constexpr int64_t kTasksPerThread = 3;  // with fewer tasks for each thread, a block is divided into segments

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t whole_vectors(int64_t rows) { return divide_up(rows, kLanes) * kLanes; }

// The places at which a sequence's tasks and partial results begin. There is one entry more than there are sequences.
struct Starts {
  int64_t task, merge, partial;
};

// The operands of an op of attention.
struct AttentionOperands {
  const ts_kv_layer* layer;
  const float* q;
  const float* chosen;  // for a layer of latents: `choices` positions that each token sees, rising, then -1; NULL for all
  const float* q_turned;  // for a layer of latents: the query dimensions for the key's dimensions after the latent; else NULL
  const int32_t *row_starts, *context_tokens, *page_table;
  float* out;
  int64_t q_stride, turned_stride, chosen_stride, choices, heads, sequences, page_table_stride, out_stride;
  float scale, soft_cap;  // soft_cap: 0 for none
  const float *sinks, *slopes;  // one number for each query head, or NULL
  int32_t window, ahead;  // ahead: the positions after its own that a row sees as well
  const int32_t* ends;  // for each row: one after the last position that it sees at least; or NULL
  Places places;
};

// How the rows become tasks of the pool, and which products they use.
struct AttentionSchedule {
  int64_t group, tokens_per_block, key_padded, value_padded;  // key_padded, value_padded: head sizes, rounded up to whole vectors
  int64_t heads_together;  // KV heads of a task with few rows
  bool split;              // whether a task is one segment of a block
  bool matrix;  // whether both products use matrix registers
};

struct AttentionScratch {
  Starts* starts;
  float* partials;
  float* thread_scratch;
  int64_t thread_floats, partial_floats;
};

struct AttentionJob : AttentionOperands, AttentionSchedule, AttentionScratch {};

// Makes a job from the operands that all ops of attention have. The caller has checked them. Operands that only one op has stay zero.
template <class Args>
AttentionJob job_of(const Args& a) {
  AttentionJob job = {};
  job.layer = a.layer;
  job.q = a.q.data;
  job.q_stride = a.q.stride;
  job.heads = a.q.heads;
  job.row_starts = a.batch.row_starts;
  job.context_tokens = a.batch.context_tokens;
  job.sequences = a.batch.count;
  job.page_table = a.batch.page_table;
  job.page_table_stride = a.batch.max_pages;
  job.scale = static_cast<float>(a.scale);
  job.out = a.out.data;
  job.out_stride = a.out.stride;
  return job;
}

// Checks the job and runs it. Returns a ts_status.
int32_t run_attention(ts_context* context, AttentionJob* job);

inline int64_t tokens_of(const AttentionJob* job, int64_t s) { return job->row_starts[s + 1] - job->row_starts[s]; }
inline int64_t blocks_of(const AttentionJob* job, int64_t s) { return divide_up(tokens_of(job, s), job->tokens_per_block); }
inline int64_t segments_of(const AttentionJob* job, int64_t s) { return divide_up(job->context_tokens[s], kSegment); }

inline int64_t capacity_of(const AttentionJob* job, int64_t s) {
  return whole_vectors(smaller(tokens_of(job, s), job->tokens_per_block) * job->group);
}

// A sequence of few rows takes its KV heads in step, tile by tile, so that pages are read from front to back. The part of one head in a
// page is 2 to 4 KiB, which is too short for a CPU to fetch ahead well. Measured on a Zen 4, single heads reach 58 to 83% of its reading
// rate, and whole pages 92 to 96%.
inline int64_t heads_in_step(const AttentionJob* job, int64_t s) { return capacity_of(job, s) == kLanes ? job->heads_together : 1; }

// Whether both products are of whole numbers. Latents are widened first.
inline bool in_integers(const ts_kv_layer* layer) { return has_scales(layer->kind) && layer->latent == 0; }

// The rows of a block that share one KV head.
struct HeadRows {
  int64_t kv_head;
  float* q;
  IntegerQueries integers;  // used where K and V are integers
  uint16_t* parts;  // used with matrix registers
  Partial whole, segment;

  template <class Take>
  void lay_out(const AttentionJob* job, int64_t capacity, Take&& take) {
    const int64_t dim = job->key_padded;
    q = take(capacity * dim);
    if (in_integers(job->layer)) integers.lay_out(capacity, dim, take);
    parts = reinterpret_cast<uint16_t*>(take(job->matrix ? query_part_floats(capacity, dim) : 0));
    for (Partial* partial : {&whole, &segment}) partial->lay_out(capacity, job->value_padded, take);
  }
};

// The other memory that the computation of one tile needs.
struct Workspace {
  float *scores, *rescale, *found;
  // a widened tile, where K and V are floats; or a tile as words, where they are integers and the products are of words
  float *keys, *values;
  IntegerWeights integers;  // used where K and V are integers
  uint16_t* parts;  // used with matrix registers

  template <class Take>
  void lay_out(const AttentionJob* job, int64_t capacity, Take&& take) {
    const bool whole_numbers = in_integers(job->layer);
    scores = take(capacity * kTile);
    rescale = take(capacity);
    found = take(capacity);
    const int64_t widened = whole_numbers ? (kWordProducts ? kTile / 2 : 0) : kTile;  // the floats of one dimension
    keys = take(widened * job->key_padded);
    values = take(widened * job->value_padded);
    if (whole_numbers) integers.lay_out(capacity, take);
    parts = reinterpret_cast<uint16_t*>(take(job->matrix ? weight_part_floats(capacity) : 0));
  }
};

// Hands out arrays one after the other. Each begins at a cache line, because every size is a multiple of 16.
struct Memory {
  float* at;

  float* operator()(int64_t floats) {
    float* const array = at;
    at += floats;
    return array;
  }
};

template <class Layout>
int64_t floats_of(const AttentionJob* job, int64_t capacity) {
  int64_t total = 0;
  Layout().lay_out(job, capacity, [&total](int64_t floats) {
    total += floats;
    return static_cast<float*>(nullptr);
  });
  return total;
}

// Query rows, and a thread's memory for them: `tokens` tokens of one sequence times the query heads of `heads` KV heads.
struct Block {
  Workspace work;
  int64_t sequence, first_head, heads, first_token, tokens, first_position;
  int64_t rows, capacity;  // rows: the rows of each KV head; capacity: the room for them, a multiple of 16

  // `index` counts blocks, one group of `heads` KV heads after the other. In each group the last tokens come first, because they see most.
  Block(const AttentionJob* job, int32_t thread, int64_t s, int64_t index, int64_t heads_of_block)
      : sequence(s), heads(heads_of_block), capacity(capacity_of(job, s)) {
    const int64_t blocks = blocks_of(job, s), end = job->row_starts[s + 1];
    first_head = index / blocks * heads;
    first_token = job->row_starts[s] + (blocks - 1 - index % blocks) * job->tokens_per_block;
    tokens = smaller(job->tokens_per_block, end - first_token);
    rows = tokens * job->group;
    first_position = job->context_tokens[s] - (end - first_token);
    memory_ = job->thread_scratch + thread * job->thread_floats;
    Memory memory = {memory_};
    work.lay_out(job, capacity, memory);
    memory_ = memory.at;
    head_floats_ = floats_of<HeadRows>(job, capacity);
  }

  static int64_t floats(const AttentionJob* job, int64_t capacity, int64_t heads) {
    return floats_of<Workspace>(job, capacity) + heads * floats_of<HeadRows>(job, capacity);
  }

  // KV head first_head + i.
  HeadRows head(const AttentionJob* job, int64_t i) const {
    HeadRows found;
    found.lay_out(job, capacity, Memory{memory_ + i * head_floats_});
    found.kv_head = first_head + i;
    return found;
  }

 private:
  float* memory_;
  int64_t head_floats_;
};

// One tile of a block's sequence, for one KV head: the places at which K begins in each page.
struct Tile {
  int64_t start;           // its first position
  int pages, first, last;  // some row sees the positions [first, last), counted from the start
  uint8_t* keys[kTilePages];
  int64_t ahead[kTilePages];  // the distance in bytes to what is read next: the next head or `after`; 0 where nothing comes next
  const uint8_t* after[kTilePages];  // K of the next tile's first head, or NULL
  Span spans[kMostQueryHeads > kBlockRows ? kMostQueryHeads : kBlockRows];
};

inline int64_t first_seen(const AttentionJob* job, int64_t position) {
  if (job->window < 0) return position - position % -job->window;
  return job->window > 0 ? larger(0, position - job->window + 1) : 0;
}

// One after the last position that a row of sequence s sees.
inline int64_t seen_end(const AttentionJob* job, int64_t s, int64_t position) {
  int64_t end = position + 1 + job->ahead;
  if (job->ends != nullptr) end = larger(end, job->ends[job->row_starts[s + 1] - (job->context_tokens[s] - position)]);
  return smaller(end, job->context_tokens[s]);
}

// One after the last position that some row of the block sees.
inline int64_t block_end(const AttentionJob* job, const Block& block) {
  int64_t end = seen_end(job, block.sequence, block.first_position + block.tokens - 1);
  for (int64_t t = 0; job->ends != nullptr && t + 1 < block.tokens; ++t)
    end = larger(end, seen_end(job, block.sequence, block.first_position + t));
  return end;
}

// An entry of the block's page table. The entries of pages before the windows of all rows have no meaning. For such a page this is the
// first page that some row sees: the tile is read whole, but these scores are never used.
inline int32_t page_of(const AttentionJob* job, const Block& block, int64_t page) {
  const int64_t seen = first_seen(job, block.first_position) / TS_PAGE_TOKENS;
  return job->page_table[block.sequence * job->page_table_stride + larger(page, seen)];
}

// Where K of the block's first head begins in page p of tile `tile`. After the last tile come the heads that are read next. NULL where
// there are none.
inline const uint8_t* keys_after(const AttentionJob* job, const Block& block, int64_t tile, int64_t p) {
  const int64_t end = block_end(job, block), tiles = divide_up(end, kTile);
  const bool same = tile < tiles;
  if (!same) tile += first_seen(job, block.first_position) / kTile - tiles;
  const int64_t page = tile * kTilePages + p, head = block.first_head + (same ? 0 : block.heads);
  if (page * TS_PAGE_TOKENS >= end || head == job->layer->kv_heads) return nullptr;
  return KVLayout(job->layer).keys(page_of(job, block, page), head);
}

// Finds what is fetched while head i of the block is read.
inline void look_ahead(const KVLayout& layout, const Block& block, int64_t i, Tile* tile) {
  for (int p = 0; p < tile->pages; ++p) {
    const uint8_t* last = tile->after[p];
    tile->ahead[p] = i + 1 < block.heads ? layout.head_bytes : last == nullptr ? 0 : last - tile->keys[p];
  }
}

// Finds the tile of the block's first head.
inline void find_tile(const AttentionJob* job, const Block& block, int64_t start, Tile* tile) {
  const int64_t end = block_end(job, block);
  const KVLayout layout(job->layer);
  tile->start = start;
  tile->pages = static_cast<int>(smaller(kTilePages, divide_up(end - start, TS_PAGE_TOKENS)));
  tile->first = kTile;
  tile->last = 0;
  for (int p = 0; p < tile->pages; ++p) {
    tile->keys[p] = layout.keys(page_of(job, block, start / TS_PAGE_TOKENS + p), block.first_head);
    tile->after[p] = keys_after(job, block, start / kTile + 1, p);
  }
  look_ahead(layout, block, 0, tile);
  for (int64_t t = 0; t < block.tokens; ++t) {
    const int64_t position = block.first_position + t;
    const Span span = {static_cast<int>(larger(first_seen(job, position) - start, 0)),
                       static_cast<int>(smaller(seen_end(job, block.sequence, position) - start, kTile))};
    for (int64_t g = 0; g < job->group; ++g) tile->spans[t * job->group + g] = span;
    if (span.empty()) continue;
    tile->first = span.begin < tile->first ? span.begin : tile->first;
    tile->last = span.end > tile->last ? span.end : tile->last;
  }
}

// Moves the tile from the head before to head i of the block, at the same positions.
inline void to_next_head(const KVLayout& layout, const Block& block, int64_t i, Tile* tile) {
  for (int p = 0; p < tile->pages; ++p) tile->keys[p] += layout.head_bytes;
  look_ahead(layout, block, i, tile);
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

// The elements from one row of V to the next, where they are floats.
template <typename Element>
int64_t value_step(const KVLayout& layout) {
  return layout.value_row_bytes * (kIsPair<Element> ? 2 : 1) / static_cast<int64_t>(sizeof(Element));
}

// A view of a widened tile: K (dim, kTile), V (kTile, padded).
inline TileView<float> widened(const float* data, int64_t page_step, int64_t step) {
  TileView<float> view = {};
  view.step = step;
  for (int p = 0; p < kTilePages; ++p) view.pages[p] = data + p * page_step;
  return view;
}

inline void load_scales(const AttentionJob* job, const IntegerWeights& integers, const Tile& tile) {
  const KVLayout layout(job->layer);
  for (int p = 0; p < tile.pages; ++p) {
    uint8_t* scales = layout.key_scales(tile.keys[p]);
    prefetch_ahead(scales, tile.ahead[p]);
    uint16_t both[2 * kLanes];
    memcpy(both, scales, sizeof both);
    store(integers.key_scales + p * kLanes, load_bf16(both));
    store(integers.value_scales + p * kLanes, load_bf16(both + kLanes));
  }
}

// The positions of a tile that some row of [r, r + count) sees.
inline Span seen_by(const Tile& tile, int64_t r, int64_t count) {
  Span seen = {kTile, 0};
  for (int64_t i = r; i < r + count; ++i) {
    if (tile.spans[i].empty()) continue;
    seen.begin = tile.spans[i].begin < seen.begin ? tile.spans[i].begin : seen.begin;
    seen.end = tile.spans[i].end > seen.end ? tile.spans[i].end : seen.end;
  }
  return seen;
}

// Fetches part `part` of `parts` of the pages that the next tile reads.
inline void prefetch_part(const Tile& tile, int64_t head_bytes, int64_t part, int64_t parts) {
  for (int p = 0; p < tile.pages; ++p) {
    const int64_t end = head_bytes * (part + 1) / parts;
    for (int64_t at = head_bytes * part / parts / 64 * 64; at < end; at += 64) prefetch_ahead(tile.keys[p] + at, tile.ahead[p]);
  }
}

}  // namespace twostroke
