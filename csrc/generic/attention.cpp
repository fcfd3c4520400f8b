// ts_attention: causal softmax attention over paged K and V, with the online softmax (Milakov and Gimelshein 2018; Dao et al.
// 2022) over fixed tiles of 64 positions, and a merge in order over fixed segments of 512 positions. No score matrix is ever
// whole.
//
// A task is one block of query rows (tokens of one sequence times the heads that share a KV head); where blocks are too few for
// the threads, a task is one segment of a block. Tiles and segments lie at absolute positions, and what a row does not see leaves
// it as it was, so its arithmetic is the same whichever rows share its block and whoever computes its segments.
// Knows: the pool, attention_job.h and what it includes. Must not know: models.
#include "twostroke/attention_job.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

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
  constexpr bool kScaled = kIsNibbles<Element> || std::is_same<Element, int8_t>::value;
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim, padded = job->padded_dim, rows = block.rows;
  const TileView<Element> keys = view_of<Element>(tile, 0, TS_PAGE_TOKENS);
  const TileView<Element> values = view_of<Element>(tile, layout.key_bytes, value_step<Element>(layout));
  const bool thin = rows <= kThinBlockRows && dim % (kIsNibbles<Element> ? 32 : 16) == 0;
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

// The tiles of [begin, end) into `partial`, one after the other.
template <typename Element>
void run_tiles(const AttentionJob* job, const Block& block, int64_t begin, int64_t end, const Partial& partial) {
  Tile tile;
  for (int64_t start = begin; start < end; start += kTile) {
    find_tile(job, block, start, &tile);
    run_tile<Element>(job, block, tile, partial);
  }
}

#if defined(TS_LEVEL_AMX)
// Rows that go through all stages of a tile at once: what stands between the stages stays in the first-level cache.
constexpr int64_t kMatrixTurnRows = 16;

// As run_tile, on matrix registers, for bf16.
void run_matrix_tile(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const KVLayout layout(job->layer);
  const int64_t dim = job->layer->head_dim;
  const TileView<Bf16Pair> keys = view_of<Bf16Pair>(tile, 0, TS_PAGE_TOKENS);
  TileView<Bf16Pair> values = view_of<Bf16Pair>(tile, layout.key_bytes, value_step<Bf16Pair>(layout));
  for (int p = 0; p < kTilePages; ++p) {
    const int start = p * TS_PAGE_TOKENS, end = start + TS_PAGE_TOKENS;
    if (tile.first <= start && end <= tile.last) continue;
    Bf16Pair* kept = reinterpret_cast<Bf16Pair*>(block.values) + start / 2 * dim;
    keep_positions(values.pages[p], tile.first - start, tile.last - start, dim, kept);
    values.pages[p] = kept;
  }
  // What the next tile reads is fetched bit by bit: all at once would fill the line buffers that this one's loads wait for.
  const int64_t moments = dim / kChunk * kTilePages + (dim + 4 * kLanes - 1) / (4 * kLanes) * kTilePages * kWeightParts;
  int64_t done = 0;
  const auto moment = [&] { prefetch_part(tile, layout.head_bytes, done < moments ? done : moments - 1, moments), ++done; };
  for (int64_t r = 0; r < block.rows; r += kMatrixTurnRows) {
    const int64_t rows = smaller(kMatrixTurnRows, block.rows - r);
    const auto first = [&] {
      if (r == 0) moment();
    };
    const Partial part = {partial.sum + r * dim, partial.peak + r, partial.total + r};
    matrix_scores(block.query_parts + r * dim * kQueryParts, keys, tile.pages, rows, dim, block.scores, first);
    soften<false>(block.scores, tile.spans + r, rows, nullptr, nullptr, part, block.rescale, block.found, block.sums);
    split_weights(block.scores, rows, block.weight_parts);
    rescale_rows(part.sum, block.rescale, rows, dim);
    matrix_values(block.weight_parts, values, rows, dim, part.sum, first);
  }
}

void run_bf16(const AttentionJob* job, const Block& block, int64_t begin, int64_t end, const Partial& partial) {
  if (!job->matrix) return run_tiles<Bf16Pair>(job, block, begin, end, partial);
  Tile tile;
  for (int64_t start = begin; start < end; start += kTile) {
    find_tile(job, block, start, &tile);
    run_matrix_tile(job, block, tile, partial);
  }
}
#else
void run_bf16(const AttentionJob* job, const Block& block, int64_t begin, int64_t end, const Partial& partial) {
  run_tiles<Bf16Pair>(job, block, begin, end, partial);
}
#endif

// The tiles of one segment that some row of the block sees, into `partial`.
void run_segment(const AttentionJob* job, const Block& block, int64_t segment, const Partial& partial) {
  partial.clear(block.rows, job->padded_dim);
  const int64_t begin = larger(segment * kSegment, first_seen(job, block.first_position) / kTile * kTile);
  const int64_t end = smaller((segment + 1) * kSegment, block.first_position + block.tokens);
  switch (job->layer->kind) {
    case TS_KV_F32: return run_tiles<float>(job, block, begin, end, partial);
    case TS_KV_BF16: return run_bf16(job, block, begin, end, partial);
    case TS_KV_INT8: return run_tiles<int8_t>(job, block, begin, end, partial);
    default: return run_tiles<Nibbles>(job, block, begin, end, partial);
  }
}

// log2(e) is in the queries, because weights are powers of two. Begins the block.
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
#if defined(TS_LEVEL_AMX)
  if (!job->matrix) return;
  split_queries(block.q, block.rows, job->padded_dim, block.query_parts);
  matrix_attention_begin(block.rows);
#endif
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
  if (job->matrix) matrix_attention_end();
  store_outputs(job, block, block.whole);
}

void segment_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of_task(job, job->task_starts, index), local = index - job->task_starts[s];
  Block block(job, thread);
  find_block(job, s, local / segments_of(job, s), &block);
  load_queries(job, block);
  run_segment(job, block, local % segments_of(job, s), partial_at(job, job->partials + index * partial_floats(job)));
  if (job->matrix) matrix_attention_end();
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
  job->matrix = kMatrixAttention && job->layer->kind == TS_KV_BF16 && job->layer->head_dim % kChunk == 0;
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
