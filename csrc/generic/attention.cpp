// ts_attention: causal softmax attention over paged K and V, with the online softmax (Milakov and Gimelshein 2018; Dao et al.
// 2022) over fixed tiles of 64 positions, and a merge in order over fixed segments of 512 positions. No score matrix is ever
// whole.
//
// A task is one block of query rows (tokens of one sequence times the heads that share a KV head); where blocks are too few for
// the threads, a task is one segment of a block. Tiles and segments lie at absolute positions, and what a row does not see leaves
// it as it was, so its arithmetic is the same whichever rows share its block and whoever computes its segments.
// Knows: the pool, attention_tile.h, attention_rows.h. Must not know: models.
#include "twostroke/attention_rows.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

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
  int64_t* task_starts;   // (sequences + 1,) first task of each sequence
  int64_t* merge_starts;  // the same for the merging tasks
  float* partials;        // one partial result a task, where split
  float* thread_scratch;
  int64_t thread_floats;
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t partial_floats(const AttentionJob* job) { return job->capacity * (job->padded_dim + 2); }

Partial partial_at(const AttentionJob* job, float* memory) {
  float* peak = memory + job->capacity * job->padded_dim;
  return {memory, peak, peak + job->capacity};
}

// One thread's memory for a block of rows. Every array begins at a cache line.
struct Block {
  float *q, *scores, *rescale, *found, *sums, *key_scales, *value_scales, *keys, *values;
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
    float* rest = values + kTile * dim;
    whole = partial_at(job, rest);
    segment = partial_at(job, rest + partial_floats(job));
  }

  static int64_t floats(const AttentionJob* job) {
    return job->capacity * (job->padded_dim + kTile + 3) + 2 * kTile + 2 * kTile * job->padded_dim + 2 * partial_floats(job);
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

int64_t first_seen(const AttentionJob* job, int64_t position) {
  return job->window > 0 ? larger(0, position - job->window + 1) : 0;
}

void find_tile(const AttentionJob* job, const Block& block, int64_t start, Tile* tile) {
  const int64_t end = block.first_position + block.tokens;
  const KVLayout layout(job->layer);
  const int32_t* table = job->page_table + block.sequence * job->page_table_stride;
  tile->start = start;
  tile->pages = static_cast<int>(smaller(kTilePages, divide_up(end - start, TS_PAGE_TOKENS)));
  tile->first = kTile;
  tile->last = 0;
  for (int p = 0; p < tile->pages; ++p) {
    const int64_t page = start / TS_PAGE_TOKENS + p, next = page + kTilePages;
    tile->keys[p] = layout.keys(table[page], block.kv_head);
    tile->ahead[p] = next * TS_PAGE_TOKENS < end ? layout.keys(table[next], block.kv_head) - tile->keys[p] : 0;
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

// A tile that was widened: K (dim, kTile), V (kTile, padded).
TileView<float> widened(const float* data, int64_t page_step, int64_t step) {
  TileView<float> view = {};
  view.step = step;
  for (int p = 0; p < kTilePages; ++p) view.pages[p] = data + p * page_step;
  return view;
}

void load_scales(const AttentionJob* job, const Block& block, const Tile& tile) {
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
Span seen_by(const Tile& tile, int64_t r, int64_t count) {
  Span seen = {kTile, 0};
  for (int64_t i = r; i < r + count; ++i) {
    if (tile.spans[i].empty()) continue;
    seen.begin = tile.spans[i].begin < seen.begin ? tile.spans[i].begin : seen.begin;
    seen.end = tile.spans[i].end > seen.end ? tile.spans[i].end : seen.end;
  }
  return seen;
}

// Part `part` of `parts` of the pages that the next tile reads.
void prefetch_part(const Tile& tile, int64_t head_bytes, int64_t part, int64_t parts) {
  for (int p = 0; p < tile.pages; ++p) {
    const int64_t end = head_bytes * (part + 1) / parts;
    for (int64_t at = head_bytes * part / parts / 64 * 64; at < end; at += 64) prefetch_ahead(tile.keys[p] + at, tile.ahead[p]);
  }
}

// Both products, a register tile of rows at a time, over what these rows see; K and V are widened beforehand.
void score_block(const AttentionJob* job, const Block& block, const Tile& tile) {
  const int64_t dim = job->layer->head_dim, padded = job->padded_dim, parts = divide_up(block.rows, kWideRows);
  const int64_t head_bytes = KVLayout(job->layer).head_bytes;
  const TileView<float> keys = widened(block.keys, kLanes, kTile);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t r = part * kWideRows, count = smaller(kWideRows, block.rows - r);
    const int pages = static_cast<int>(divide_up(seen_by(tile, r, count).end, TS_PAGE_TOKENS));
    prefetch_part(tile, head_bytes, part, parts);
    score_rows<float, kWideRows, kWideVectors>(block.q + r * padded, padded, count, keys, pages, dim, block.scores + r * kTile);
  }
}

void add_block(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const int64_t padded = job->padded_dim;
  const TileView<float> values = widened(block.values, TS_PAGE_TOKENS * padded, padded);
  for (int64_t r = 0; r < block.rows; r += kWideRows) {
    const int64_t count = smaller(kWideRows, block.rows - r);
    const Span seen = seen_by(tile, r, count);
    if (seen.empty()) continue;
    value_rows<float, kWideRows, kWideVectors>(block.scores + r * kTile, block.rescale + r, count, values, seen.begin, seen.end, padded,
                                               partial.sum + r * padded, padded);
  }
}

template <typename Element>
void run_tile(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  constexpr bool kNibbles = std::is_same<Element, Nibbles>::value;
  constexpr bool kScaled = kNibbles || std::is_same<Element, int8_t>::value;
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim, padded = job->padded_dim, rows = block.rows;
  const TileView<Element> keys = view_of<Element>(tile, 0, TS_PAGE_TOKENS);
  const TileView<Element> values =
      view_of<Element>(tile, layout.key_bytes, layout.value_row_bytes / static_cast<int64_t>(sizeof(Element)));
  const bool thin = rows <= kThinBlockRows && dim % (kNibbles ? 32 : 16) == 0;
  if (kScaled) load_scales(job, block, tile);
  if (thin) {
    score_rows<Element, kThinRows, kThinVectors>(block.q, padded, rows, keys, tile.pages, dim, block.scores);
  } else {
    widen_keys(keys, tile.pages, dim, block.keys);
    score_block(job, block, tile);
  }
  soften<kScaled>(block.scores, tile.spans, rows, block.key_scales, block.value_scales, partial, block.rescale, block.found, block.sums);
  if (thin) {
    value_rows<Element, kThinRows, kThinVectors>(block.scores, block.rescale, rows, values, tile.first, tile.last, dim, partial.sum, padded);
  } else {
    widen_values(values, tile.first, tile.last, dim, padded, block.values);
    add_block(job, block, tile, partial);
  }
}

// The tiles of one segment that some row of the block sees, into `partial`.
void run_segment(const AttentionJob* job, const Block& block, int64_t segment, const Partial& partial) {
  partial.clear(block.rows, job->padded_dim);
  const int64_t begin = larger(segment * kSegment, first_seen(job, block.first_position) / kTile * kTile);
  const int64_t end = smaller((segment + 1) * kSegment, block.first_position + block.tokens);
  Tile tile;
  for (int64_t start = begin; start < end; start += kTile) {
    find_tile(job, block, start, &tile);
    switch (job->layer->kind) {
      case TS_KV_F32: run_tile<float>(job, block, tile, partial); break;
      case TS_KV_BF16: run_tile<uint16_t>(job, block, tile, partial); break;
      case TS_KV_INT8: run_tile<int8_t>(job, block, tile, partial); break;
      default: run_tile<Nibbles>(job, block, tile, partial); break;
    }
  }
}

// log2(e) is in the queries, because weights are powers of two.
void load_queries(const AttentionJob* job, const Block& block) {
  const int64_t dim = job->layer->head_dim;
  const float scale = job->scale * 1.44269504088896341f;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = block.kv_head * job->group + r % job->group;
    const float* from = job->q + (block.first_token + r / job->group) * job->q_stride + head * dim;
    float* to = block.q + r * job->padded_dim;
    for (int64_t d = 0; d < dim; ++d) to[d] = from[d] * scale;
    for (int64_t d = dim; d < job->padded_dim; ++d) to[d] = 0.0f;
  }
}

void store_outputs(const AttentionJob* job, const Block& block, const Partial& partial) {
  const int64_t dim = job->layer->head_dim;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = block.kv_head * job->group + r % job->group;
    float* to = job->out + (block.first_token + r / job->group) * job->out_stride + head * dim;
    const float inverse = 1.0f / partial.total[r];
    for (int64_t d = 0; d < dim; ++d) to[d] = partial.sum[r * job->padded_dim + d] * inverse;
  }
}

int64_t tokens_of(const AttentionJob* job, int64_t s) { return job->row_starts[s + 1] - job->row_starts[s]; }
int64_t blocks_of(const AttentionJob* job, int64_t s) { return divide_up(tokens_of(job, s), job->tokens_per_block); }
int64_t segments_of(const AttentionJob* job, int64_t s) { return divide_up(job->context_tokens[s], kSegment); }

int64_t sequence_of_task(const AttentionJob* job, const int64_t* starts, int64_t index) {
  int64_t low = 0, high = job->sequences;  // starts[low] <= index < starts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (starts[middle] <= index ? low : high) = middle;
  }
  return low;
}

// Block `index` of a sequence, KV head by KV head; in each the last block, which sees most, comes first.
void find_block(const AttentionJob* job, int64_t sequence, int64_t index, Block* block) {
  const int64_t blocks = blocks_of(job, sequence), rows_end = job->row_starts[sequence + 1];
  block->sequence = sequence;
  block->kv_head = index / blocks;
  block->first_token = job->row_starts[sequence] + (blocks - 1 - index % blocks) * job->tokens_per_block;
  block->tokens = smaller(job->tokens_per_block, rows_end - block->first_token);
  block->rows = block->tokens * job->group;
  block->first_position = job->context_tokens[sequence] - (rows_end - block->first_token);
}

void whole_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of_task(job, job->task_starts, index);
  Block block(job, thread);
  find_block(job, s, index - job->task_starts[s], &block);
  load_queries(job, block);
  const int64_t first = first_seen(job, block.first_position) / kSegment;
  const int64_t last = (block.first_position + block.tokens - 1) / kSegment;
  run_segment(job, block, first, block.whole);
  for (int64_t segment = first + 1; segment <= last; ++segment) {
    run_segment(job, block, segment, block.segment);
    merge(block.whole, block.segment, block.rows, job->padded_dim, block.rescale, block.sums);
  }
  store_outputs(job, block, block.whole);
}

void segment_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of_task(job, job->task_starts, index), local = index - job->task_starts[s];
  Block block(job, thread);
  find_block(job, s, local / segments_of(job, s), &block);
  load_queries(job, block);
  run_segment(job, block, local % segments_of(job, s), partial_at(job, job->partials + index * partial_floats(job)));
}

void merge_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of_task(job, job->merge_starts, index), local = index - job->merge_starts[s];
  Block block(job, thread);
  find_block(job, s, local, &block);
  float* first = job->partials + (job->task_starts[s] + local * segments_of(job, s)) * partial_floats(job);
  for (int64_t segment = 1; segment < segments_of(job, s); ++segment) {
    merge(partial_at(job, first), partial_at(job, first + segment * partial_floats(job)), block.rows, job->padded_dim, block.rescale,
          block.sums);
  }
  store_outputs(job, block, partial_at(job, first));
}

int32_t check(const AttentionJob& job) {
  const ts_kv_layer* layer = job.layer;
  const int64_t width = job.heads * layer->head_dim;
  if (job.heads < 1 || job.heads % layer->kv_heads != 0 || job.heads / layer->kv_heads > kMaxGroup) return TS_BAD_SHAPE;
  if (job.q_stride < width || job.out_stride < width || job.sequences < 0 || job.window < 0) return TS_BAD_SHAPE;
  for (int64_t s = 0; s < job.sequences; ++s) {
    const int64_t rows = static_cast<int64_t>(job.row_starts[s + 1]) - job.row_starts[s];
    const int64_t pages = divide_up(job.context_tokens[s], TS_PAGE_TOKENS);
    if (job.row_starts[s] < 0 || rows < 0 || rows > job.context_tokens[s] || pages > job.page_table_stride) return TS_BAD_SHAPE;
    for (int64_t p = 0; p < pages; ++p) {
      const int32_t page = job.page_table[s * job.page_table_stride + p];
      if (page < 0 || page >= layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

// Sizes of blocks, and whether they are too few for the threads.
void plan(AttentionJob* job, int64_t threads) {
  job->group = job->heads / job->layer->kv_heads;
  int64_t longest = 1, tasks = 0;
  for (int64_t s = 0; s < job->sequences; ++s) longest = larger(longest, tokens_of(job, s));
  job->tokens_per_block = smaller(longest, larger(1, kBlockRows / job->group));
  job->capacity = divide_up(job->tokens_per_block * job->group, kLanes) * kLanes;
  job->padded_dim = divide_up(job->layer->head_dim, kLanes) * kLanes;
  job->thread_floats = Block::floats(job);
  for (int64_t s = 0; s < job->sequences; ++s) tasks += blocks_of(job, s) * job->layer->kv_heads;
  job->split = threads > 1 && tasks < kTasksPerThread * threads;
}

int32_t run(ts_context* context, AttentionJob* job) {
  const int32_t status = check(*job);
  if (status != TS_OK || job->sequences == 0) return status;
  plan(job, ts_threads(context));
  int64_t tasks = 0;
  for (int64_t s = 0; s < job->sequences; ++s) tasks += blocks_of(job, s) * job->layer->kv_heads * segments_of(job, s);
  const int64_t starts_bytes = divide_up((job->sequences + 1) * 8, 64) * 64;
  const int64_t floats = job->thread_floats * ts_threads(context) + (job->split ? tasks * partial_floats(job) : 0);
  char* scratch = static_cast<char*>(ts_scratch(context, static_cast<size_t>(2 * starts_bytes + 4 * floats)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job->task_starts = reinterpret_cast<int64_t*>(scratch);
  job->merge_starts = reinterpret_cast<int64_t*>(scratch + starts_bytes);
  job->thread_scratch = reinterpret_cast<float*>(scratch + 2 * starts_bytes);
  job->partials = job->thread_scratch + job->thread_floats * ts_threads(context);
  job->task_starts[0] = job->merge_starts[0] = 0;
  for (int64_t s = 0; s < job->sequences; ++s) {
    const int64_t blocks = blocks_of(job, s) * job->layer->kv_heads;
    job->merge_starts[s + 1] = job->merge_starts[s] + blocks;
    job->task_starts[s + 1] = job->task_starts[s] + blocks * (job->split ? segments_of(job, s) : 1);
  }
  ts_parallel(context, job->task_starts[job->sequences], job->split ? segment_task : whole_task, job);
  if (job->split) ts_parallel(context, job->merge_starts[job->sequences], merge_task, job);
  return TS_OK;
}

}  // namespace
}  // namespace twostroke

int32_t ts_attention(ts_context* context, const ts_kv_layer* layer, const float* q, int64_t q_stride, int64_t heads,
                     const int32_t* row_starts, const int32_t* context_tokens, int64_t sequences, const int32_t* page_table,
                     int64_t page_table_stride, float scale, int32_t window, float* out, int64_t out_stride) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t status = twostroke::check_layer(layer);
  if (status != TS_OK) return status;
  if (q == nullptr || row_starts == nullptr || context_tokens == nullptr || page_table == nullptr || out == nullptr)
    return TS_BAD_POINTER;
  twostroke::AttentionJob job = {};
  job.layer = layer;
  job.q = q;
  job.q_stride = q_stride;
  job.heads = heads;
  job.row_starts = row_starts;
  job.context_tokens = context_tokens;
  job.sequences = sequences;
  job.page_table = page_table;
  job.page_table_stride = page_table_stride;
  job.scale = scale;
  job.window = window;
  job.out = out;
  job.out_stride = out_stride;
  return twostroke::run(context, &job);
}
