// index_select: the positions that each row attends to. It computes the scores of all visible positions and then finds the largest by a
// search of their bits, eight at a time. A task is one row, whose heads share a widened tile of keys.
#include "twostroke/attention/choose.h"
#include "twostroke/attention/latent.h"
#include "twostroke/context.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

struct SelectJob {
  const ts_index_select_args* args;
  float* scratch;
  int64_t thread_floats, most_positions;  // most_positions: the positions of the longest sequence, rounded up to whole tiles
};

using Widen = void (*)(const KVLayout&, const ts_kv_layer*, const Tile&, float*);

Widen widen_way(int32_t kind) {
  switch (kind) {
    case TS_KV_F32: return widen_latent_tile<float>;
    case TS_KV_BF16: return widen_latent_tile<Bf16Pair>;
    case TS_KV_INT8: return widen_latent_tile<WholeByte>;
    default: return widen_latent_tile<Nibbles>;
  }
}

int64_t keys_floats(const ts_kv_layer* layer) { return divide_up(layer->head_dim, kLanes) * kLanes * kTile; }

// Computes the scores (positions,) of a row whose sequence has the pages of `table`.
void score_row(const SelectJob& job, int64_t row, const int32_t* table, int64_t positions, float* keys, float* scores, float* found) {
  const ts_index_select_args& a = *job.args;
  const KVLayout layout(a.layer);
  const Widen widen = widen_way(a.layer->kind);
  const float *q = a.q.data + row * a.q.stride, *weights = a.weights.data + row * a.weights.stride;
  Tile tile = {};
  for (int64_t start = 0; start < positions; start += kTile) {
    tile.pages = static_cast<int>(smaller(kTilePages, divide_up(positions - start, TS_PAGE_TOKENS)));
    for (int p = 0; p < tile.pages; ++p) tile.keys[p] = layout.keys(table[start / TS_PAGE_TOKENS + p], 0);
    widen(layout, a.layer, tile, keys);
    score_rows<float, kWideRows, kWideVectors>(q, a.q.dim, a.q.heads, widened(keys, kLanes, kTile), tile.pages, a.q.dim, scores);
    for (int p = 0; p < tile.pages; ++p) {
      Vec sum = zero();
      for (int64_t h = 0; h < a.q.heads; ++h) sum = fma(set1(weights[h]), max(zero(), load(scores + h * kTile + p * kLanes)), sum);
      store(found + start + p * kLanes, sum);
    }
  }
}

void select_task(void* opaque, int64_t row, int32_t thread) {
  const SelectJob& job = *static_cast<const SelectJob*>(opaque);
  const ts_index_select_args& a = *job.args;
  int64_t s = 0;
  while (a.batch.row_starts[s + 1] <= row) ++s;
  const int64_t positions = a.batch.context_tokens[s] - (a.batch.row_starts[s + 1] - row) + 1;
  float *keys = job.scratch + thread * job.thread_floats, *scores = keys + keys_floats(a.layer), *found = scores + a.q.heads * kTile;
  score_row(job, row, a.batch.page_table + s * a.batch.max_pages, positions, keys, scores, found);
  choose_largest(found, positions, a.out.data + row * a.out.stride, width_of(a.out));
}

int32_t check(const ts_index_select_args& a) {
  const int32_t status = check_layer(a.layer);
  if (status != TS_OK) return status;
  const ts_sequences& s = a.batch;
  if (a.layer->latent == 0 || a.q.dim != a.layer->head_dim || width_of(a.weights) != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.rows != a.out.rows || a.weights.rows != a.out.rows) return TS_BAD_SHAPE;
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && (s.row_starts[0] != 0 || s.row_starts[s.count] != a.q.rows)) return TS_BAD_INDEX;
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t rows = s.row_starts[i + 1] - s.row_starts[i], pages = divide_up(s.context_tokens[i], TS_PAGE_TOKENS);
    if (rows < 0 || rows > s.context_tokens[i] || pages > s.max_pages || s.context_tokens[i] >= 1 << 24) return TS_BAD_SHAPE;
    for (int64_t p = 0; p < pages; ++p) {
      const int32_t page = s.page_table[i * s.max_pages + p];
      if (page < 0 || page >= a.layer->num_pages) return TS_BAD_INDEX;
    }
  }
  return TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_index_select_args& a) {
  const int32_t status = check(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  SelectJob job = {&a, nullptr, 0, kTile};
  for (int64_t s = 0; s < a.batch.count; ++s) job.most_positions = larger(job.most_positions, divide_up(a.batch.context_tokens[s], kTile) * kTile);
  job.thread_floats = keys_floats(a.layer) + a.q.heads * kTile + job.most_positions;
  job.scratch = static_cast<float*>(ts_scratch(context, static_cast<size_t>(4 * job.thread_floats * ts_threads(context))));
  if (job.scratch == nullptr) return TS_NO_MEMORY;
  ts_parallel(context, a.out.rows, select_task, &job);
  return TS_OK;
}

}  // namespace twostroke
