// The rows at the first positions of a text. The products of what rounding their inputs loses are added to their sums, before the sums are
// finished. A panel is multiplied by these few rows while it is in a near cache, so that no weight is read from memory twice.
#include "twostroke/arena.h"
#include "twostroke/context.h"
#include "twostroke/first_positions.h"
#include "twostroke/linear_job.h"
#include "twostroke/rotate.h"

namespace twostroke {
namespace {

constexpr int64_t kSerialElements = 1 << 15;

// Computes x - code * scale for each column, rotated where the weight is, with zeros up to whole steps.
void remainder_of(const float* x, int64_t columns, Rounding8 how, float* to) {
  alignas(64) int8_t q[kMaxGroup];
  float scales[kStep / kFineColumns];
  int32_t corrections[kStep / kFineColumns], sub_corrections[kMaxGroup / kSubgroup];
  const int64_t each = how.group < kStep ? kStep : how.group;
  for (int64_t begin = 0; begin < columns; begin += each, to += each) {
    const int64_t width = columns - begin < each ? columns - begin : each, whole = round_up(width, kStep);
    quantize_row(x + begin, width, how, {q, how.group, scales, corrections, 1, sub_corrections});
    if (how.rotated != 0) {
      rotate_columns(x + begin, width, to);
    } else {
      memcpy(to, x + begin, static_cast<size_t>(width) * 4);
      memset(to + width, 0, static_cast<size_t>(whole - width) * 4);
    }
    for (int64_t group = 0; group < whole; group += how.group) {
      const float scale = scales[group / how.group];
      const int64_t end = group + how.group < whole ? group + how.group : whole;
      for (int64_t i = group; i < end; ++i) to[i] -= static_cast<float>(q[i]) * scale;
    }
  }
}

float* remainder_at(const FirstRows& first, int64_t index) {
  return const_cast<float*>(first.remainders.x) + index * first.remainders.x_stride;
}

// The number of the rows before `row`.
int64_t first_from(const FirstRows& first, int64_t row) {
  int64_t index = 0;
  while (index < first.count && first.rows[index] < row) ++index;
  return index;
}

void remainder_task(void* arg, int64_t index, int32_t) {
  const Job& job = *static_cast<const Job*>(arg);
  const float* x = job.x + job.first->rows[index] * job.x_stride;
  remainder_of(x, job.w.columns, rounding_for(job.w), remainder_at(*job.first, index));
}

// Multiplies the remainders from `begin` to `end` by one panel of W, into sums (rows, 64). Returns the first row that it multiplied, because
// it takes whole blocks.
int64_t multiply_remainders(const Job& job, int64_t panel, int64_t begin, int64_t end, float* sums, uint8_t* block) {
  if (job.way->few != nullptr) {
    job.way->few(job, panel, 1, sums);
    return 0;
  }
  const int64_t from = job.xq.blocked ? begin / kRowBlock * kRowBlock : begin;
  if (job.xq.blocked) end = round_up(end, kRowBlock) < job.tokens ? round_up(end, kRowBlock) : job.tokens;
  memset(sums, 0, static_cast<size_t>((end - from) * kPanel) * 4);
  const Panel whole = panel_of(job, panel);
  for (int64_t g = 0; g < job.groups; ++g) job.way->group(job, group_of(job, whole, g, whole.data), from, end, sums, block);
  return from;
}

}  // namespace

int64_t count_first(const ts_weight& w, const int32_t* positions, int64_t rows) {
  if (positions == nullptr || !is_integer_kind(w.kind)) return 0;
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) count += positions[row] < kFirstPositions;
  return count;
}

int64_t lay_out_first(FirstRows& first, Job& job, const ts_context* context, uint8_t* scratch) {
  job.first = first.count == 0 ? nullptr : &first;
  if (first.count == 0) return 0;
  ts_weight w = job.w;  // remainders are rotated already, and padded
  w.columns = job.padded;
  w.rotated = 0;
  first.remainders = make_job(w, nullptr, job.padded, nullptr, 0, 0, nullptr);
  Job& more = first.remainders;
  Arena arena = {scratch, 0};
  first.rows = arena.take<int32_t>(first.count);
  more.x = arena.take<float>(first.count * job.padded);
  more.tokens = more.xq.rows = first.count;
  more.xq.blocked = first.count >= kBlockedRows && !is_stored_kind(w.kind);
  arena.used += lay_out_rows(more.xq, w, more.padded, more.groups, arena.at());
  arena.used += lay_out_given(more, context, arena.at());
  more.slice_groups = more.groups;
  return arena.used;
}

void find_first(FirstRows& first, const int32_t* positions, int64_t rows) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows && count < first.count; ++row) {
    if (positions[row] < kFirstPositions) first.rows[count++] = static_cast<int32_t>(row);
  }
}

void keep_remainders(ts_context* context, Job& job) {
  if (job.first == nullptr) return;
  if (job.first->count > 1 && job.first->count * job.padded > kSerialElements) {
    ts_parallel(context, job.first->count, remainder_task, &job);
  } else {
    for (int64_t index = 0; index < job.first->count; ++index) remainder_task(&job, index, 0);
  }
  round_remainders(context, *job.first);
}

void keep_remainders_of(const Job& job, int64_t first_row, int64_t last_row, int64_t column, int64_t columns, const float* x) {
  if (job.first == nullptr) return;
  const FirstRows& first = *job.first;
  for (int64_t index = first_from(first, first_row); index < first.count && first.rows[index] < last_row; ++index) {
    remainder_of(x + (first.rows[index] - first_row) * columns, columns, rounding_for(job.w), remainder_at(first, index) + column);
  }
}

void round_remainders(ts_context* context, FirstRows& first) { quantize_slice(context, first.remainders); }

void add_remainders(const Job& job, int64_t panel, int64_t first_row, int64_t last_row, int32_t thread, float* sums, int64_t part_floats) {
  const FirstRows& first = *job.first;
  const Job& more = first.remainders;
  const int64_t begin = first_from(first, first_row), end = first_from(first, last_row);
  if (begin == end) return;
  float* own = reinterpret_cast<float*>(more.room + thread * more.room_bytes);
  uint8_t* block = reinterpret_cast<uint8_t*>(own + more.tokens * kPanel);
  for (int64_t part = 0; part < last_part(job, panel); ++part) {
    const int64_t from = multiply_remainders(more, part_panel(job, panel, part), begin, end, own, block);
    for (int64_t index = begin; index < end; ++index) {
      float* to = sums + part * part_floats + (first.rows[index] - first_row) * kPanel;
      const float* added = own + (index - from) * kPanel;
      for (int64_t c = 0; c < kPanel; ++c) to[c] += added[c];
    }
  }
}

}  // namespace twostroke
