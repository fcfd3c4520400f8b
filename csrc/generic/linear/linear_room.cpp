// How much of a product is computed at once, and where its scratch memory lies.
#include "twostroke/arena.h"
#include "twostroke/context.h"
#include "twostroke/products/linear_job.h"

namespace twostroke {
namespace {

// The int8 rows that are multiplied at once must fit in a second-level cache. With many columns, the product takes a slice of columns at a
// time and keeps its sums.
constexpr int64_t kSliceBytes = 1 << 20;
constexpr int64_t kReadOn = 4, kTasksEach = 8;  // for few rows: the panels of a part, and the least number of tasks for a thread
// the rows at a time where columns are in slices; kWholeRows: the rows where the columns are too many for kSliceBytes
constexpr int64_t kSlicedRows = 512;

// Keeping sums is worth its memory where the sums are fewer than the numbers that are added.
bool in_slices(const Operands& job) { return is_integer_kind(job.w.kind) && job.panels * job.parts * kPanel <= job.padded; }

// The panels that are read in turn: all panels of a task together.
int64_t panels_in_turn(const Operands& job) {
  return streams(job.w.kind) % job.parts == 0 ? streams(job.w.kind) / job.parts : 1;
}

// The most panels that leave enough tasks to even out the threads' speeds.
int64_t panels_read_on(const Operands& job, int64_t num_together, int64_t threads) {
  const int64_t most = job.panels * num_together / (kTasksEach * threads);
  return most < 1 ? 1 : most < kReadOn ? most : kReadOn;
}

// Chooses how a product with this number of rows reads the weights.
void choose_reading(const Operands& job, int64_t rows, const ts_context* context, int64_t num_together, Schedule& to) {
  to.in_turn = ts_reads_in_turn(context);
  to.way = &way_of(job.w.kind, rows, to.in_turn);
  to.panels_each = 1;
  if (to.way->few != nullptr) to.panels_each = to.in_turn ? panels_in_turn(job) : panels_read_on(job, num_together, ts_threads(context));
}

// Chooses the way of the product and the number of slices.
void schedule(Job& job, const ts_context* context, int64_t num_together) {
  choose_reading(job, job.first.count > 0 && job.tokens < kManyRows ? kManyRows : job.tokens, context, num_together, job);
  if (!is_integer_kind(job.w.kind)) return;
  const bool whole = job.tokens <= kWholeRows || !in_slices(job);
  const int64_t slices = whole ? 1 : (job.tokens * job.padded + kSliceBytes - 1) / kSliceBytes;
  job.slice_groups = (job.groups + slices - 1) / slices;
}

// Decides where sums and an unpacked group lie.
int64_t lay_out_room(Job& job, const ts_context* context, Arena arena) {
  if (job.slice_groups < job.groups) job.partial = arena.take<float>(job.panels * job.parts * job.tokens * kPanel);
  job.room_bytes = (job.panels_each * job.parts * job.tokens + job.parts * job.first.count) * kPanel * 4 + kBlockBytes;
  job.room = arena.take<uint8_t>(ts_threads(context) * job.room_bytes);
  return arena.used;
}

// Lays out the first rows and `groups` groups of their remainders.
int64_t lay_out_first(Job& job, int64_t groups, Arena arena) {
  FirstRows& first = job.first;
  if (first.count == 0) return arena.used;
  first.rows = arena.take<int32_t>(first.count);
  if (job.slice_groups < job.groups) first.partial = arena.take<float>(job.panels * job.parts * first.count * kPanel);
  first.xq.rows = first.count;
  first.xq.blocked = job.xq.blocked;
  return arena.used + lay_out_rows(first.xq, job.w, job.padded, groups, arena.at());
}

}  // namespace

Job make_job(const ts_weight& w, const float* x, int64_t x_stride, float* out, int64_t out_stride, int64_t gated, Finish finish) {
  Job job = {};
  job.w = w;
  job.x = x;
  job.x_stride = x_stride;
  job.out = out;
  job.out_stride = out_stride;
  job.gated = gated;
  job.parts = gated == 0 ? 1 : gated % kPanel == 0 ? 2 : kMaxParts;
  job.finish = finish;
  job.padded = padded_columns(w.kind, w.columns);
  job.groups = w.group > 0 ? (job.padded + w.group - 1) / w.group : 0;
  job.panels = ((gated > 0 ? gated : w.rows) + kPanel - 1) / kPanel;
  return job;
}

int64_t chunk_rows(const Operands& job, int64_t tokens) {
  const int64_t least = in_slices(job) ? kSlicedRows : kWholeRows, most = kSliceBytes / job.padded / 32 * 32;
  const int64_t rows = most < least ? least : most;
  return tokens < rows ? tokens : rows;
}

int64_t lay_out_rows(QuantizedRows& xq, const ts_weight& w, int64_t padded, int64_t groups, uint8_t* scratch) {
  Arena arena = {scratch, 0};
  const int64_t read_rows = round_up(xq.rows, kReadRows), group = w.group < padded ? w.group : padded;
  // A row is one cache line longer than its columns need, because rows that are a power of two apart would all use the same few sets of the
  // cache.
  xq.q_stride = xq.blocked ? group * kRowBlock : padded + 64;
  xq.scales_each = w.group / activation_columns(w);
  xq.q_group_stride = xq.blocked ? read_rows * group : activation_columns(w);
  xq.subgroups = padded / kSubgroup;
  xq.q = arena.take<int8_t>(xq.blocked ? groups * xq.q_group_stride : xq.rows * xq.q_stride);
  xq.scales = arena.take<float>(groups * xq.scales_each * xq.rows);
  xq.corrections = arena.take<int32_t>(groups * xq.scales_each * xq.rows);
  xq.sub_corrections = xq.blocked ? nullptr : arena.take<int32_t>(xq.rows * xq.subgroups);
  // rows after the last one are multiplied, too, so they must hold valid numbers
  if (scratch != nullptr && xq.blocked && read_rows > xq.rows) {
    const int64_t filled = xq.rows / kRowBlock * xq.q_stride;
    for (int64_t g = 0; g < groups; ++g) {
      memset(xq.q + g * xq.q_group_stride + filled, 0, static_cast<size_t>(xq.q_group_stride - filled));
    }
  }
  return arena.used;
}

int64_t lay_out(Job& job, const ts_context* context, uint8_t* scratch, int64_t num_together) {
  schedule(job, context, num_together);
  if (!is_integer_kind(job.w.kind)) return 0;
  job.xq.blocked = kLevel.has_blocks() && !is_stored_kind(job.w.kind) && (job.tokens >= kBlockedRows || job.first.count > 0);
  job.xq.rows = job.tokens;
  const int64_t rows_bytes = lay_out_rows(job.xq, job.w, job.padded, job.slice_groups, scratch);
  return lay_out_room(job, context, {scratch, lay_out_first(job, job.slice_groups, {scratch, rows_bytes})});
}

int64_t lay_out_given(Job& job, const ts_context* context, uint8_t* scratch) {
  schedule(job, context, 1);
  if (!is_integer_kind(job.w.kind)) return 0;
  return lay_out_room(job, context, {scratch, lay_out_first(job, job.groups, {scratch, 0})});
}

}  // namespace twostroke
