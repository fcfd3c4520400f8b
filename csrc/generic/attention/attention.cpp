// ts_attention: softmax attention over paged K and V, causal or in both directions. It uses the online softmax (Milakov and Gimelshein
// 2018; Dao et al. 2022) over fixed tiles of 64 positions, and merges fixed segments of 512 positions in order. It never holds a whole
// score matrix.
//
// A task is one block of query rows: tokens of one sequence times the heads that share a KV head. Where rows are few, a block has several
// KV heads in step. Where blocks are too few for the threads, a task is one segment of a block. Tiles and segments lie at absolute
// positions, and positions that a row does not see leave its result unchanged. So a row's arithmetic is the same whichever rows share its
// block and whichever thread computes its segments.
#include "twostroke/attention/tile_run.h"
#include "twostroke/context.h"
#include "twostroke/kernel_case.h"

namespace twostroke {
namespace {

// Computes the tiles of one segment that some row of the block sees. part(head, i) is the place for the results of head i.
template <class Part>
void run_segment(const AttentionJob* job, const Block& block, int64_t segment, const Part& part) {
  const KVLayout layout(job->layer);
  const TileRun run_tile = attention_way(job->layer->kind, job->layer->latent != 0, job->matrix).run;
  const int64_t begin = larger(segment * kSegment, first_seen(job, block.first_position) / kTile * kTile);
  const int64_t end = smaller((segment + 1) * kSegment, block_end(job, block));
  for (int64_t i = 0; i < block.heads; ++i) part(block.head(job, i), i).clear(block.rows, job->value_padded);
  Tile tile;
  for (int64_t start = begin; start < end; start += kTile) {
    find_tile(job, block, start, &tile);
    for (int64_t i = 0; i < block.heads; ++i) {
      if (i > 0) to_next_head(layout, block, i, &tile);
      const HeadRows head = block.head(job, i);
      run_tile(job, block, head, tile, part(head, i));
    }
  }
}

// Queries are multiplied by log2(e), because weights are powers of two.
void load_head(const AttentionJob* job, const Block& block, int64_t kv_head, const HeadRows& rows) {
  const int64_t dim = job->layer->head_dim, padded = job->key_padded, turned = job->q_turned == nullptr ? 0 : dim - job->layer->value_dim;
  const float scale = job->scale * kLog2E;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = kv_head * job->group + r % job->group;
    const int64_t token = block.first_token + r / job->group;
    const float* from = job->q + token * job->q_stride + head * (dim - turned);
    float* to = rows.q + r * padded;
    for (int64_t d = 0; d < dim - turned; ++d) to[d] = from[d] * scale;
    if (turned > 0) {
      from = job->q_turned + token * job->turned_stride + head * turned;
      for (int64_t d = 0; d < turned; ++d) to[dim - turned + d] = from[d] * scale;
    }
    for (int64_t d = dim; d < padded; ++d) to[d] = 0.0f;
  }
  const int32_t integers = in_integers(job->layer) ? job->layer->kind : -1;
  if (integers == TS_KV_INT8) bytes_of_queries<WholeByte>(rows.q, block.rows, padded, rows.integers);
  if (integers == TS_KV_INT4) bytes_of_queries<Nibbles>(rows.q, block.rows, padded, rows.integers);
  if constexpr (kLevel.matrix_registers) {
    if (job->matrix) split_queries(rows.q, block.rows, padded, rows.parts);
  }
}

// Begins the block's queries; end_queries finishes them.
void load_queries(const AttentionJob* job, const Block& block) {
  for (int64_t i = 0; i < block.heads; ++i) load_head(job, block, block.first_head + i, block.head(job, i));
  if constexpr (kLevel.matrix_registers) {
    if (job->matrix) matrix_attention_begin(block.rows);
  }
}

void end_queries([[maybe_unused]] const AttentionJob* job) {
  if constexpr (kLevel.matrix_registers) {
    if (job->matrix) matrix_attention_end();
  }
}

// One over the sum of all weights, relative to the row's own peak. The sum includes the sink: a score without a value (gpt-oss).
float with_sink(float sink, float peak, float total) {
  const Vec own = set1(peak), other = set1(sink * kLog2E), highest = max(other, own);
  float kept[kLanes], more[kLanes];
  store(kept, exp2_negative(own - highest));
  store(more, exp2_negative(other - highest));
  return kept[0] / (total * kept[0] + more[0]);
}

void store_outputs(const AttentionJob* job, const Block& block, int64_t kv_head, const Partial& partial) {
  const int64_t dim = job->layer->value_dim;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = kv_head * job->group + r % job->group;
    float* to = job->out + (block.first_token + r / job->group) * job->out_stride + head * dim;
    const float total = reduce_add(load(partial.total + r * kLanes));
    const float inverse = job->sinks == nullptr ? 1.0f / total : with_sink(job->sinks[head], partial.peak[r], total);
    for (int64_t d = 0; d < dim; ++d) to[d] = partial.sum[r * job->value_padded + d] * inverse;
  }
}

int64_t sequence_of(const AttentionJob* job, int64_t Starts::*first, int64_t index) {
  int64_t low = 0, high = job->sequences;  // starts[low] <= index < starts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (job->starts[middle].*first <= index ? low : high) = middle;
  }
  return low;
}

// The partial result of one segment for a KV head's block. `index` counts one KV head after the other, as in Block.
Partial partial_of(const AttentionJob* job, int64_t s, int64_t index, int64_t segment) {
  Memory memory = {job->partials + (job->starts[s].partial + index * segments_of(job, s) + segment) * job->partial_floats};
  Partial found;
  found.lay_out(capacity_of(job, s), job->value_padded, memory);
  return found;
}

void whole_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of(job, &Starts::task, index);
  const Block block(job, thread, s, index - job->starts[s].task, heads_in_step(job, s));
  load_queries(job, block);
  const int64_t first = first_seen(job, block.first_position) / kSegment;
  const int64_t last = (block_end(job, block) - 1) / kSegment;
  run_segment(job, block, first, [](const HeadRows& head, int64_t) { return head.whole; });
  for (int64_t segment = first + 1; segment <= last; ++segment) {
    run_segment(job, block, segment, [](const HeadRows& head, int64_t) { return head.segment; });
    for (int64_t i = 0; i < block.heads; ++i) {
      const HeadRows head = block.head(job, i);
      merge(head.whole, head.segment, block.rows, job->value_padded, block.work.rescale, block.work.found);
    }
  }
  end_queries(job);
  for (int64_t i = 0; i < block.heads; ++i) store_outputs(job, block, block.first_head + i, block.head(job, i).whole);
}

void segment_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of(job, &Starts::task, index), local = index - job->starts[s].task;
  const int64_t blocks = blocks_of(job, s), segment = local % segments_of(job, s);
  const Block block(job, thread, s, local / segments_of(job, s), heads_in_step(job, s));
  const int64_t of_first = block.first_head * blocks + local / segments_of(job, s) % blocks;
  load_queries(job, block);
  run_segment(job, block, segment, [&](const HeadRows&, int64_t i) { return partial_of(job, s, of_first + i * blocks, segment); });
  end_queries(job);
}

void merge_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of(job, &Starts::merge, index), local = index - job->starts[s].merge;
  const Block block(job, thread, s, local, 1);
  const Partial first = partial_of(job, s, local, 0);
  for (int64_t segment = 1; segment < segments_of(job, s); ++segment)
    merge(first, partial_of(job, s, local, segment), block.rows, job->value_padded, block.work.rescale, block.work.found);
  store_outputs(job, block, block.first_head, first);
}

int32_t check(const AttentionJob& job) {
  const ts_kv_layer* layer = job.layer;
  const int64_t turned = job.q_turned == nullptr ? 0 : layer->head_dim - layer->value_dim;
  if (job.heads < 1 || job.heads % layer->kv_heads != 0 || job.heads / layer->kv_heads > kMostQueryHeads) return TS_BAD_SHAPE;
  if (job.q_stride < job.heads * (layer->head_dim - turned) || job.out_stride < job.heads * layer->value_dim) return TS_BAD_SHAPE;
  if (job.turned_stride < job.heads * turned || job.sequences < 0 || job.window == INT32_MIN || job.ahead < 0) return TS_BAD_SHAPE;
  if (!(job.soft_cap >= 0.0f)) return TS_BAD_VALUE;
  for (int64_t s = 0; s < job.sequences; ++s) {
    const int64_t rows = static_cast<int64_t>(job.row_starts[s + 1]) - job.row_starts[s];
    const int64_t pages = divide_up(job.context_tokens[s], TS_PAGE_TOKENS);
    if (job.row_starts[s] < 0 || rows < 0 || rows > job.context_tokens[s] || pages > job.page_table_stride) return TS_BAD_SHAPE;
    // Pages before the window were given back, so their entries have no meaning.
    for (int64_t p = first_seen(&job, job.context_tokens[s] - rows) / TS_PAGE_TOKENS; p < pages; ++p) {
      const int32_t page = job.page_table[s * job.page_table_stride + p];
      if (page < 0 || page >= layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

int64_t tasks_of(const AttentionJob* job, int64_t s) {
  return blocks_of(job, s) * (job->layer->kv_heads / heads_in_step(job, s)) * (job->split ? segments_of(job, s) : 1);
}

int64_t all_tasks(const AttentionJob* job) {
  int64_t tasks = 0;
  for (int64_t s = 0; s < job->sequences; ++s) tasks += tasks_of(job, s);
  return tasks;
}

int64_t largest_divisor_below(int64_t number, int64_t below) {
  do --below;
  while (number % below != 0);
  return below;
}

// Puts as many heads in step as leave enough tasks for the threads, first with whole blocks, then with segments.
void share_out(AttentionJob* job, int64_t threads) {
  const int64_t enough = threads > 1 ? kTasksPerThread * threads : 1;
  for (const bool split : {false, true}) {
    job->split = split;
    job->heads_together = job->layer->kv_heads;
    if (all_tasks(job) >= enough) return;
  }
  while (job->heads_together > 1 && all_tasks(job) < enough)
    job->heads_together = largest_divisor_below(job->layer->kv_heads, job->heads_together);
}

bool takes_matrix(int32_t kv_kind, int64_t head_dim) {
  return kLevel.matrix_registers && kv_kind == TS_KV_BF16 && head_dim % kChunk == 0;
}

// Returns the number of rows of a block, with all query heads of a KV head.
int64_t block_rows(const ts_kv_layer* layer) {
  if (layer->latent != 0) return kLatentBlockRows;
  return in_integers(layer) && !kWordProducts ? kRegisterTiles.byte_block_rows : kBlockRows;
}

// Chooses the sizes of blocks and of a thread's memory.
void plan(AttentionJob* job, int64_t threads) {
  const int64_t least = job->layer->kind == TS_KV_INT4 ? 2 * kLanes : kLanes;
  int64_t longest = 1;
  for (int64_t s = 0; s < job->sequences; ++s) longest = larger(longest, tokens_of(job, s));
  job->group = job->heads / job->layer->kv_heads;
  job->tokens_per_block = smaller(longest, larger(1, block_rows(job->layer) / job->group));
  job->key_padded = divide_up(job->layer->head_dim, least) * least;
  job->value_padded = divide_up(job->layer->value_dim, least) * least;
  // Matrix registers are not used with two head sizes or with latents, because neither was ever measured.
  job->matrix = takes_matrix(job->layer->kind, job->layer->head_dim) && job->layer->value_dim == job->layer->head_dim && job->layer->latent == 0;
  share_out(job, threads);
  const int64_t capacity = whole_vectors(job->tokens_per_block * job->group);
  job->thread_floats = larger(Block::floats(job, capacity, 1), Block::floats(job, kLanes, job->heads_together));
  job->partial_floats = job->split ? capacity * (job->value_padded + 1 + kLanes) : 0;
}

}  // namespace

int32_t run_attention(ts_context* context, AttentionJob* job) {
  const int32_t status = check(*job);
  if (status != TS_OK || job->sequences == 0) return status;
  plan(job, ts_threads(context));
  int64_t results = 0;
  for (int64_t s = 0; s < job->sequences; ++s) results += blocks_of(job, s) * job->layer->kv_heads * segments_of(job, s);
  const int64_t starts_bytes = divide_up((job->sequences + 1) * static_cast<int64_t>(sizeof(Starts)), 64) * 64;
  const int64_t floats = job->thread_floats * ts_threads(context) + results * job->partial_floats;
  char* scratch = static_cast<char*>(ts_scratch(context, static_cast<size_t>(starts_bytes + 4 * floats)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job->starts = reinterpret_cast<Starts*>(scratch);
  job->thread_scratch = reinterpret_cast<float*>(scratch + starts_bytes);
  job->partials = job->thread_scratch + job->thread_floats * ts_threads(context);
  job->starts[0] = {};
  for (int64_t s = 0; s < job->sequences; ++s) {
    const int64_t blocks = blocks_of(job, s) * job->layer->kv_heads;
    const Starts& here = job->starts[s];
    job->starts[s + 1] = {here.task + tasks_of(job, s), here.merge + blocks, here.partial + blocks * segments_of(job, s)};
  }
  ts_parallel(context, job->starts[job->sequences].task, job->split ? segment_task : whole_task, job);
  if (job->split) ts_parallel(context, job->starts[job->sequences].merge, merge_task, job);
  return TS_OK;
}

const char* attention_kernel(const KernelCase& asked) {
  return attention_way(asked.kv_kind, false, takes_matrix(asked.kv_kind, asked.head_dim)).name;
}

const char* latent_attention_kernel(const KernelCase& asked) { return attention_way(asked.kv_kind, true, false).name; }

}  // namespace twostroke

int32_t ts_attention(ts_context* context, const ts_kv_layer* layer, const float* q, int64_t q_stride, int64_t heads,
                     const int32_t* row_starts, const int32_t* context_tokens, int64_t sequences, const int32_t* page_table,
                     int64_t page_table_stride, float scale, int32_t window, float soft_cap, const float* sinks, const float* slopes,
                     int32_t ahead, float* out, int64_t out_stride) {
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
  job.soft_cap = soft_cap;
  job.sinks = sinks;
  job.slopes = slopes;
  job.ahead = ahead;
  job.out = out;
  job.out_stride = out_stride;
  return twostroke::run_attention(context, &job);
}
