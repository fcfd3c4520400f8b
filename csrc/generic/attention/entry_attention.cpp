// entry_attention: softmax attention over entries. The online softmax goes over tiles of the entries that a row sees, in their order. A
// task is some heads of one row, for which an entry is widened once. A row's result does not depend on other rows.
#include "twostroke/attention/entries.h"
#include "twostroke/attention/rows.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

constexpr int kHeads = 4;  // heads of a task
constexpr int kEntries = 32;  // entries of a tile

// The sums of one head, relative to the largest score.
struct Head {
  const float* q;
  float *sum, peak, total;
};

// The entries that a row sees: `count` entries from `first` on, or those among them that `chosen` lists.
struct Seen {
  const float* chosen;
  int64_t choices, first, count, at;

  // Returns the next entry, or -1.
  int64_t next() {
    if (chosen == nullptr) return at < count ? first + at++ : -1;
    for (; at < choices && chosen[at] >= 0.0f; ++at) {
      const int64_t entry = static_cast<int64_t>(chosen[at]);
      if (entry >= first && entry < first + count) return ++at, entry;
    }
    return -1;
  }
};

void add_tile(Head* head, const float* scores, const float* entries, int64_t count, int64_t dim) {
  float highest = head->peak, weights[kEntries], kept[kLanes];
  for (int64_t e = 0; e < count; ++e) highest = scores[e] > highest ? scores[e] : highest;
  for (int64_t e = 0; e < count; e += kLanes)
    store(weights + e, exp2_negative(load_part(scores + e, count - e < kLanes ? count - e : kLanes, -INFINITY) - set1(highest)));
  store(kept, exp2_negative(set1(head->peak - highest)));
  float total = head->total * kept[0];
  for (int64_t e = 0; e < count; ++e) total += weights[e];
  head->total = total;
  head->peak = highest;
  const Vec factor = set1(kept[0]);
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Vec sum = load(head->sum + d) * factor;
    for (int64_t e = 0; e < count; ++e) sum = fma(set1(weights[e]), load(entries + e * dim + d), sum);
    store(head->sum + d, sum);
  }
  if (d == dim) return;
  Vec sum = load_part(head->sum + d, dim - d, 0.0f) * factor;
  for (int64_t e = 0; e < count; ++e) sum = fma(set1(weights[e]), load_part(entries + e * dim + d, dim - d, 0.0f), sum);
  store_part(head->sum + d, dim - d, sum);
}

// Finishes the softmax. The sink's part is dropped.
void finish(const Head& head, const float* sink, int64_t dim) {
  float kept = 1.0f, total = head.total;
  if (sink != nullptr) {
    const float other = *sink * kLog2E, highest = other > head.peak ? other : head.peak;
    float both[kLanes] = {head.peak - highest, other - highest};
    store(both, exp2_negative(load(both)));
    kept = both[0];
    total = total * kept + both[1];
  }
  for (int64_t d = 0; d < dim; ++d) head.sum[d] = head.sum[d] * kept / total;
}

struct AttendJob {
  const ts_entry_attention_args* args;
  float* scratch;
};

// Sets a head's state at the start: empty, or the state that the call before has stored.
void begin(const ts_entry_attention_args& a, int64_t row, int64_t h, Head* head) {
  const int64_t dim = a.q.dim;
  head->q = a.q.data + row * a.q.stride + h * dim;
  head->sum = a.out.data + row * a.out.stride + h * a.out.dim;
  head->peak = kLowest;
  head->total = 0.0f;
  if (a.before.data == nullptr) {
    memset(head->sum, 0, static_cast<size_t>(dim) * sizeof(float));
    return;
  }
  const float* before = a.before.data + row * a.before.stride + h * a.before.dim;
  memcpy(head->sum, before, static_cast<size_t>(dim) * sizeof(float));
  head->peak = before[dim];
  head->total = before[dim + 1];
}

void attend_task(void* opaque, int64_t index, int32_t thread) {
  const AttendJob& job = *static_cast<const AttendJob*>(opaque);
  const ts_entry_attention_args& a = *job.args;
  const int64_t dim = a.q.dim, blocks = (a.q.heads + kHeads - 1) / kHeads, row = index / blocks, first = index % blocks * kHeads;
  const int64_t heads = a.q.heads - first < kHeads ? a.q.heads - first : kHeads, s = sequence_of_row(a.batch, row);
  const int64_t end = (a.batch.context_tokens[s] - (a.batch.row_starts[s + 1] - row) + 1) / a.rate;
  const int64_t from = a.window > 0 && end > a.window ? end - a.window : 0;
  Seen seen = {a.chosen.data == nullptr ? nullptr : a.chosen.data + row * a.chosen.stride, width_of(a.chosen), from, end - from, 0};
  const EntryPages pages(a.layer, dim, a.rate);
  const int32_t* table = a.batch.page_table + s * a.batch.max_pages;
  float* entries = job.scratch + thread * kEntries * dim;
  Head own[kHeads];
  for (int64_t h = 0; h < heads; ++h) begin(a, row, first + h, &own[h]);
  const float scale = static_cast<float>(a.scale) * kLog2E;
  const float* rows[kHeads];
  for (int64_t h = 0; h < kHeads; ++h) rows[h] = own[h < heads ? h : 0].q;
  for (int64_t count = kEntries; count == kEntries;) {
    float scores[kHeads][kEntries], found[kHeads];
    for (count = 0; count < kEntries; ++count) {
      const int64_t entry = seen.next();
      if (entry < 0) break;
      pages.load(table, entry, entries + count * dim);
      dots<kHeads>(rows, entries + count * dim, dim, found);
      for (int64_t h = 0; h < heads; ++h) scores[h][count] = found[h] * scale;
    }
    for (int64_t h = 0; h < heads && count > 0; ++h) add_tile(&own[h], scores[h], entries, count, dim);
  }
  for (int64_t h = 0; h < heads; ++h) {
    if (a.out.dim > dim) {
      own[h].sum[dim] = own[h].peak;
      own[h].sum[dim + 1] = own[h].total;
    } else {
      finish(own[h], a.sinks.data == nullptr ? nullptr : a.sinks.data + first + h, dim);
    }
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_entry_attention_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  AttendJob job = {&a, static_cast<float*>(ts_scratch(context, static_cast<size_t>(4 * kEntries * a.q.dim * ts_threads(context))))};
  if (job.scratch == nullptr) return TS_NO_MEMORY;
  ts_parallel(context, a.q.rows * ((a.q.heads + kHeads - 1) / kHeads), attend_task, &job);
  return TS_OK;
}

}  // namespace twostroke
