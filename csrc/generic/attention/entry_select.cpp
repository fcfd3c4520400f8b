// entry_select: the entries that each row attends to. It computes the scores of all visible entries and then finds the largest. A task is
// one row.
#include "twostroke/attention/choose.h"
#include "twostroke/attention/entries.h"
#include "twostroke/context.h"

namespace twostroke {
namespace {

constexpr int kHeads = 4;  // heads whose products share the loads of an entry

struct SelectJob {
  const ts_entry_select_args* args;
  float* scratch;
  int64_t thread_floats;
};

float score_of(const ts_entry_select_args& a, int64_t row, const float* entry) {
  const float *q = a.q.data + row * a.q.stride, *weights = a.weights.data + row * a.weights.stride;
  float sum = 0.0f, found[kHeads];
  for (int64_t h = 0; h < a.q.heads; h += kHeads) {
    const int64_t count = a.q.heads - h < kHeads ? a.q.heads - h : kHeads;
    const float* rows[kHeads];
    for (int64_t i = 0; i < kHeads; ++i) rows[i] = q + (h + (i < count ? i : 0)) * a.q.dim;
    dots<kHeads>(rows, entry, a.q.dim, found);
    for (int64_t i = 0; i < count; ++i) sum += weights[h + i] * (found[i] < 0.0f ? 0.0f : found[i]);
  }
  return sum;
}

void select_task(void* opaque, int64_t row, int32_t thread) {
  const SelectJob& job = *static_cast<const SelectJob*>(opaque);
  const ts_entry_select_args& a = *job.args;
  const int64_t s = sequence_of_row(a.batch, row);
  const int64_t count = (a.batch.context_tokens[s] - (a.batch.row_starts[s + 1] - row) + 1) / a.rate;
  const EntryPages pages(a.layer, a.q.dim, a.rate);
  float *entry = job.scratch + thread * job.thread_floats, *scores = entry + a.q.dim;
  for (int64_t e = 0; e < count; ++e) {
    pages.load(a.batch.page_table + s * a.batch.max_pages, e, entry);
    scores[e] = score_of(a, row, entry);
  }
  choose_largest(scores, count, a.out.data + row * a.out.stride, width_of(a.out));
}

}  // namespace

int32_t run(ts_context* context, const ts_entry_select_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK || a.batch.count == 0) return status;
  int64_t most = 0;
  for (int64_t s = 0; s < a.batch.count; ++s) most = most > a.batch.context_tokens[s] / a.rate ? most : a.batch.context_tokens[s] / a.rate;
  SelectJob job = {&a, nullptr, (a.q.dim + most + kLanes - 1) / kLanes * kLanes};
  job.scratch = static_cast<float*>(ts_scratch(context, static_cast<size_t>(4 * job.thread_floats * ts_threads(context))));
  if (job.scratch == nullptr) return TS_NO_MEMORY;
  ts_parallel(context, a.out.rows, select_task, &job);
  return TS_OK;
}

}  // namespace twostroke
