// ts_linear and similar ops. This file checks shapes, takes scratch memory, and goes through rows chunk by chunk and through columns slice
// by slice.
#include "twostroke/context.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/products/stored.h"

namespace twostroke {

namespace {

// prepare() is called before each slice.
template <class Prepare>
void multiply_slices(ts_context* context, Job& job, const Prepare& prepare) {
  const int64_t panel_tasks = (job.panels + job.panels_each - 1) / job.panels_each, each = job.slice_groups;
  choose_splits(job, panel_tasks, ts_threads(context));
  for (job.first_group = 0; job.first_group == 0 || job.first_group < job.groups; job.first_group += each) {
    job.slice_groups = job.groups - job.first_group < each ? job.groups - job.first_group : each;
    prepare();
    ts_parallel(context, panel_tasks * job.row_splits, multiply_task, &job);
    if (!is_integer_kind(job.w.kind)) break;
  }
}

}  // namespace

void multiply_chunk(ts_context* context, Job& job) {
  multiply_slices(context, job, [&] {
    if (!is_integer_kind(job.w.kind)) return;
    job.xq.first_group = job.first_group;
    quantize_slice(context, job);
  });
}

void multiply_given(ts_context* context, Job& job) {
  multiply_slices(context, job, [] {});
}

namespace {

int32_t check_operands(ts_context* context, const ProductRows& rows, int64_t columns, int64_t columns_out) {
  if (rows.tokens < 0 || rows.x_stride < columns || rows.out_stride < columns_out) return TS_BAD_SHAPE;
  if (rows.tokens == 0) return TS_OK;
  return context == nullptr || rows.x == nullptr || rows.out == nullptr ? TS_BAD_POINTER : TS_OK;
}

// Multiplies one chunk of rows.
int32_t multiply_rows(ts_context* context, Job& job, const int32_t* positions) {
  job.first.count = count_first(job.w, positions, job.tokens);
  const int64_t bytes = lay_out(job, context, nullptr);
  uint8_t* scratch = bytes == 0 ? nullptr : static_cast<uint8_t*>(ts_scratch(context, static_cast<size_t>(bytes)));
  if (bytes > 0 && scratch == nullptr) return TS_NO_MEMORY;
  lay_out(job, context, scratch);
  find_first(job.first, positions, job.tokens);
  multiply_chunk(context, job);
  return TS_OK;
}

}  // namespace

int32_t multiply(ts_context* context, const ts_weight* w, const ProductRows& rows, int64_t gated, Finish finish) {
  const int64_t columns_out = gated > 0 ? gated : w->rows;
  int32_t status = check_operands(context, rows, w->columns, columns_out);
  const Job all = make_job(*w, rows.x, rows.x_stride, rows.out, rows.out_stride, gated, finish);
  const int64_t chunk = chunk_rows(all, rows.tokens);
  for (int64_t first = 0; first < rows.tokens && status == TS_OK; first += chunk) {
    Job job = all;
    job.x += first * rows.x_stride;
    job.out += first * rows.out_stride;
    job.tokens = rows.tokens - first < chunk ? rows.tokens - first : chunk;
    status = multiply_rows(context, job, rows.positions == nullptr ? nullptr : rows.positions + first);
  }
  return status;
}

}  // namespace twostroke

using namespace twostroke;

int32_t ts_linear(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                  int64_t out_stride) {
  const int32_t status = check_weight(w);
  return status != TS_OK ? status : multiply(context, w, {x, x_stride, tokens, out, out_stride, nullptr}, 0, finish_store);
}

int32_t ts_linear_add(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                      int64_t out_stride) {
  const int32_t status = check_weight(w);
  return status != TS_OK ? status : multiply(context, w, {x, x_stride, tokens, out, out_stride, nullptr}, 0, finish_add);
}

int32_t ts_linear_silu(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                       int64_t out_stride) {
  const int32_t status = check_weight(w);
  if (status != TS_OK) return status;
  if (w->rows % 2 != 0) return TS_BAD_SHAPE;
  return multiply(context, w, {x, x_stride, tokens, out, out_stride, nullptr}, w->rows / 2, finish_silu);
}
