// ts_attention: causal softmax attention over paged K and V, with the online softmax (Milakov and Gimelshein 2018; Dao et al.
// 2022) over fixed tiles of 64 positions. No score matrix is ever whole.
//
// A task is one block of query rows (tokens of one sequence times the heads that share a KV head). A row skips the tiles that it
// does not see, so its arithmetic is the same whichever rows share its block.
// Knows: the pool, attention_tile.h. Must not know: models.
#include "twostroke/attention_tile.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

constexpr int64_t kBlockRows = 64;

struct AttentionJob {
  const ts_kv_layer* layer;
  const float* q;
  int64_t q_stride, heads;
  const int32_t* row_starts;
  const int32_t* context_tokens;
  int64_t sequences;
  const int32_t* page_table;
  int64_t page_table_stride;
  float scale;
  int32_t window;
  float* out;
  int64_t out_stride;
  int64_t group, tokens_per_block, padded_dim;
  int64_t* task_starts;  // (sequences + 1,)
  float* thread_scratch;
  int64_t thread_floats;
};

// One thread's memory for a block of rows.
struct Block {
  float *q, *sum, *scores, *peak, *total, *rescale;
  int64_t rows, first_token, tokens;

  Block(float* memory, int64_t capacity, int64_t dim)
      : q(memory), sum(q + capacity * dim), scores(sum + capacity * dim), peak(scores + capacity * kTile), total(peak + capacity),
        rescale(total + capacity), rows(0), first_token(0), tokens(0) {}

  static int64_t floats(int64_t capacity, int64_t dim) { return capacity * (2 * dim + kTile + 3) + kLanes; }
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Positions [begin, end) of the tile at `start` that the row at `position` sees, counted from the tile's start.
struct Span {
  int begin, end;
};

Span visible(int64_t position, int32_t window, int64_t start) {
  const int64_t first = window > 0 ? larger(0, position - window + 1) : 0;
  return {static_cast<int>(larger(first - start, 0)), static_cast<int>(smaller(position + 1 - start, kTile))};
}

// Scores to weights in place: one row, one tile. Masked lanes become exactly 0.
void soften(float* scores, Span span, float* peak, float* total, float* rescale) {
  for (int t = 0; t < span.begin; ++t) scores[t] = -INFINITY;
  for (int t = span.end; t < kTile; ++t) scores[t] = -INFINITY;
  Vec v[kTilePages];
  for (int p = 0; p < kTilePages; ++p) v[p] = load(scores + p * kLanes);
  const float found = reduce_max(max(max(v[0], v[1]), max(v[2], v[3])));
  const float now = found > *peak ? found : *peak;
  for (int p = 0; p < kTilePages; ++p) store(scores + p * kLanes, exp(v[p] - set1(now)));
  for (int t = 0; t < span.begin; ++t) scores[t] = 0.0f;
  for (int t = span.end; t < kTile; ++t) scores[t] = 0.0f;
  for (int p = 0; p < kTilePages; ++p) v[p] = load(scores + p * kLanes);
  float before[kLanes];
  store(before, exp(set1(*peak - now)));
  *rescale = *peak == -INFINITY ? 0.0f : before[0];
  *total = *total * *rescale + reduce_add((v[0] + v[1]) + (v[2] + v[3]));
  *peak = now;
}

// Rows [r, r + kRows) of a block: values of the union of their spans; weights outside a row's own span are 0.
template <typename Element, int kRows>
void add_values(const Block& block, int64_t r, const Span* spans, const Element* const* values, int64_t dim, int64_t padded_dim) {
  int first = kTile, last = 0;
  for (int i = 0; i < kRows; ++i) {
    if (spans[r + i].begin >= spans[r + i].end) continue;
    first = spans[r + i].begin < first ? spans[r + i].begin : first;
    last = spans[r + i].end > last ? spans[r + i].end : last;
  }
  if (first >= last) return;
  value_vectors<Element, kRows>(block.scores + r * kTile, block.rescale + r, values, first, last, dim, block.sum + r * padded_dim,
                                padded_dim);
}

template <typename Element>
void run_tile(const AttentionJob* job, const Block& block, int64_t sequence, int64_t kv_head, int64_t start, int64_t first_position) {
  const KVView<Element> view = view_of<Element>(job->layer);
  const int64_t last_position = first_position + block.tokens - 1;
  const int pages = static_cast<int>(smaller(kTilePages, (last_position - start) / TS_PAGE_TOKENS + 1));
  const int32_t* table = job->page_table + sequence * job->page_table_stride + start / TS_PAGE_TOKENS;
  const Element* keys[kTilePages] = {nullptr, nullptr, nullptr, nullptr};
  const Element* values[kTilePages] = {nullptr, nullptr, nullptr, nullptr};
  for (int p = 0; p < pages; ++p) {
    keys[p] = view.keys(table[p], kv_head);
    values[p] = view.values(table[p], kv_head);
  }
  score_rows<Element>(block.q, job->padded_dim, block.rows, keys, pages, view.head_dim, block.scores);
  Span spans[512];
  for (int64_t r = 0; r < block.rows; ++r) {
    spans[r] = visible(first_position + r / job->group, job->window, start);
    if (spans[r].begin < spans[r].end) {
      soften(block.scores + r * kTile, spans[r], block.peak + r, block.total + r, block.rescale + r);
    } else {
      for (int t = 0; t < kTile; ++t) block.scores[r * kTile + t] = 0.0f;
      block.rescale[r] = 1.0f;
    }
  }
  int64_t r = 0;
  for (; r + kValueRows <= block.rows; r += kValueRows) add_values<Element, kValueRows>(block, r, spans, values, view.head_dim, job->padded_dim);
  for (; r < block.rows; ++r) add_values<Element, 1>(block, r, spans, values, view.head_dim, job->padded_dim);
}

void load_queries(const AttentionJob* job, const Block& block, int64_t kv_head) {
  const int64_t dim = job->layer->head_dim;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = kv_head * job->group + r % job->group;
    const float* from = job->q + (block.first_token + r / job->group) * job->q_stride + head * dim;
    float* to = block.q + r * job->padded_dim;
    for (int64_t d = 0; d < dim; ++d) to[d] = from[d] * job->scale;
    for (int64_t d = 0; d < job->padded_dim; ++d) block.sum[r * job->padded_dim + d] = 0.0f;
    block.peak[r] = -INFINITY;
    block.total[r] = 0.0f;
  }
}

void store_outputs(const AttentionJob* job, const Block& block, int64_t kv_head) {
  const int64_t dim = job->layer->head_dim;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t head = kv_head * job->group + r % job->group;
    float* to = job->out + (block.first_token + r / job->group) * job->out_stride + head * dim;
    const float inverse = 1.0f / block.total[r];
    for (int64_t d = 0; d < dim; ++d) to[d] = block.sum[r * job->padded_dim + d] * inverse;
  }
}

int64_t sequence_of_task(const AttentionJob* job, int64_t index) {
  int64_t low = 0, high = job->sequences;  // task_starts[low] <= index < task_starts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (job->task_starts[middle] <= index ? low : high) = middle;
  }
  return low;
}

void attention_task(void* opaque, int64_t index, int32_t thread) {
  const AttentionJob* job = static_cast<const AttentionJob*>(opaque);
  const int64_t s = sequence_of_task(job, index), local = index - job->task_starts[s];
  const int64_t kv_head = local % job->layer->kv_heads, block_index = local / job->layer->kv_heads;
  const int64_t rows_begin = job->row_starts[s], rows_end = job->row_starts[s + 1];
  Block block(job->thread_scratch + thread * job->thread_floats, job->tokens_per_block * job->group, job->padded_dim);
  block.first_token = rows_begin + block_index * job->tokens_per_block;
  block.tokens = smaller(job->tokens_per_block, rows_end - block.first_token);
  block.rows = block.tokens * job->group;
  const int64_t first_position = job->context_tokens[s] - (rows_end - block.first_token);
  load_queries(job, block, kv_head);
  const int64_t begin = job->window > 0 ? larger(0, first_position - job->window + 1) : 0;
  for (int64_t start = begin / kTile * kTile; start < first_position + block.tokens; start += kTile) {
    if (job->layer->kind == TS_KV_F32) {
      run_tile<float>(job, block, s, kv_head, start, first_position);
    } else {
      run_tile<uint16_t>(job, block, s, kv_head, start, first_position);
    }
  }
  store_outputs(job, block, kv_head);
}

int32_t check(const AttentionJob& job) {
  const ts_kv_layer* layer = job.layer;
  const int64_t width = job.heads * layer->head_dim;
  if (job.heads < 1 || job.heads % layer->kv_heads != 0 || job.heads / layer->kv_heads > 512) return TS_BAD_SHAPE;
  if (job.q_stride < width || job.out_stride < width || job.sequences < 0 || job.window < 0) return TS_BAD_SHAPE;
  for (int64_t s = 0; s < job.sequences; ++s) {
    const int64_t rows = static_cast<int64_t>(job.row_starts[s + 1]) - job.row_starts[s];
    const int64_t pages = (static_cast<int64_t>(job.context_tokens[s]) + TS_PAGE_TOKENS - 1) / TS_PAGE_TOKENS;
    if (job.row_starts[s] < 0 || rows < 0 || rows > job.context_tokens[s] || pages > job.page_table_stride) return TS_BAD_SHAPE;
    for (int64_t p = 0; p < pages; ++p) {
      const int32_t page = job.page_table[s * job.page_table_stride + p];
      if (page < 0 || page >= layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

int32_t run(ts_context* context, AttentionJob* job) {
  const int32_t status = check(*job);
  if (status != TS_OK || job->sequences == 0) return status;
  job->group = job->heads / job->layer->kv_heads;
  job->tokens_per_block = larger(1, kBlockRows / job->group);
  job->padded_dim = (static_cast<int64_t>(job->layer->head_dim) + kLanes - 1) / kLanes * kLanes;
  job->thread_floats = Block::floats(job->tokens_per_block * job->group, job->padded_dim);
  const int64_t starts_bytes = ((job->sequences + 1) * 8 + 63) / 64 * 64;
  const int64_t bytes = starts_bytes + 4 * job->thread_floats * ts_threads(context);
  char* scratch = static_cast<char*>(ts_scratch(context, static_cast<size_t>(bytes)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job->task_starts = reinterpret_cast<int64_t*>(scratch);
  job->thread_scratch = reinterpret_cast<float*>(scratch + starts_bytes);
  job->task_starts[0] = 0;
  for (int64_t s = 0; s < job->sequences; ++s) {
    const int64_t tokens = job->row_starts[s + 1] - job->row_starts[s];
    const int64_t blocks = (tokens + job->tokens_per_block - 1) / job->tokens_per_block;
    job->task_starts[s + 1] = job->task_starts[s] + blocks * job->layer->kv_heads;
  }
  ts_parallel(context, job->task_starts[job->sequences], attention_task, job);
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
