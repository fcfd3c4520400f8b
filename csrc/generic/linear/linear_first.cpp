// The rows at the first positions of a text. The products of what rounding their inputs loses are added to their sums, before the sums are
// finished. The tasks that round rows round these remainders, too. Each group of a panel is multiplied by the rows and then by the
// remainders, so that no weight is read or unpacked twice.
#include "twostroke/products/first_positions.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/products/rotate.h"

namespace twostroke {
namespace {

// Copies a row into its block of `rows` rows.
void put_in_block(const int8_t* codes, int64_t columns, int64_t row, int64_t rows, int8_t* block) {
  constexpr int64_t kTogether = kLevel.matrix_registers ? kStep : 4;
  const int64_t stride = kLevel.matrix_registers ? kRowBlock : rows;
  for (int64_t k = 0; k < columns; k += kTogether) memcpy(block + k * stride + row * kTogether, codes + k, kTogether);
}

// Rounds one group of one remainder. x: the group's columns of the row. Several threads may write rows of one block.
void round_group_of(const Job& job, int64_t index, int64_t group, const float* x) {
  alignas(64) float kept[kMaxGroup];
  const QuantizedRows& xq = job.first.xq;
  const int64_t left = job.w.columns - group * job.w.group, width = left < job.w.group ? left : job.w.group;
  const Rounding8 how = rounding_for(job.w);
  remainder_of(x, width, how, kept);
  QuantizedRow to = quantized_group(xq, index, group - job.first_group);
  if (!xq.blocked) return quantize_row(kept, round_up(width, kStep), {how.group, 0}, to);
  alignas(64) int8_t codes[kMaxGroup];
  int8_t* const block = to.q;
  const int64_t row = index % kRowBlock, after = xq.rows - (index - row);
  to.q = codes;
  quantize_row(kept, round_up(width, kStep), {how.group, 0}, to);
  put_in_block(codes, round_up(width, kStep), row, after < kRowBlock ? after : kRowBlock, block);
}

// The number of the first rows before `row`.
int64_t first_from(const FirstRows& first, int64_t row) {
  int64_t index = 0;
  while (index < first.count && first.rows[index] < row) ++index;
  return index;
}

// Copies the sums of the rows' own remainders between a task's room and the place where they wait for the next slice.
void copy_sums(const Job& job, int64_t panel, const Remainders& these, bool to_task) {
  const int64_t floats = (these.end - these.begin) * kPanel;
  for (int64_t part = 0; part < job.parts; ++part) {
    float* const waiting = job.first.partial + (panel * job.parts + part) * job.first.count * kPanel + these.begin * kPanel;
    float* const own = these.of_part(part) + (these.begin - these.from) * kPanel;
    memcpy(to_task ? own : waiting, to_task ? waiting : own, static_cast<size_t>(floats) * 4);
  }
}

}  // namespace

void remainder_of(const float* x, int64_t width, Rounding8 how, float* to) {
  alignas(64) int8_t q[kMaxGroup];
  float scales[kMaxGroup / kFineColumns];
  int32_t corrections[kMaxGroup / kFineColumns], sub_corrections[kMaxGroup / kSubgroup];
  const int64_t whole = round_up(width, kStep);
  if (how.rotated != 0) {
    rotate_columns(x, width, to);
  } else {
    memcpy(to, x, static_cast<size_t>(width) * 4);
    memset(to + width, 0, static_cast<size_t>(whole - width) * 4);
  }
  quantize_row(to, whole, {how.group, 0}, {q, how.group, scales, corrections, 1, sub_corrections});
  for (int64_t group = 0; group < whole; group += how.group) {
    const float scale = scales[group / how.group];
    const int64_t end = group + how.group < whole ? group + how.group : whole;
    for (int64_t i = group; i < end; ++i) to[i] -= static_cast<float>(q[i]) * scale;
  }
}

int64_t count_first(const ts_weight& w, const int32_t* positions, int64_t rows) {
  if (positions == nullptr || !is_integer_kind(w.kind)) return 0;
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) count += positions[row] < kFirstPositions;
  return count;
}

void find_first(FirstRows& first, const int32_t* positions, int64_t rows) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows && count < first.count; ++row) {
    if (positions[row] < kFirstPositions) first.rows[count++] = static_cast<int32_t>(row);
  }
}

void round_remainder(const Job& job, int64_t index) {
  const float* x = job.x + job.first.rows[index] * job.x_stride;
  const int64_t end = job.first_group + job.slice_groups;
  for (int64_t group = job.first_group; group < end; ++group) round_group_of(job, index, group, x + group * job.w.group);
}

void round_remainders(const Job& job, int64_t first_row, int64_t last_row, int64_t group, const float* x, int64_t x_stride) {
  const FirstRows& first = job.first;
  for (int64_t index = first_from(first, first_row); index < first.count && first.rows[index] < last_row; ++index) {
    round_group_of(job, index, group, x + (first.rows[index] - first_row) * x_stride);
  }
}

RowSet Remainders::set(const FirstRows& first, int64_t part) const {
  if (from == to) return {};
  return {tile_rows(first.xq, from), to - from, of_part(part)};
}

Remainders remainders_of(const Job& job, int64_t panel, int64_t first_row, int64_t last_row, float* room) {
  const FirstRows& first = job.first;
  const int64_t begin = first_from(first, first_row), end = first_from(first, last_row);
  Remainders these = {begin, end, begin, end, room};
  if (begin == end) return these;
  if (first.xq.blocked) {
    const int64_t whole = round_up(end, kRowBlock);
    these.from = begin / kRowBlock * kRowBlock;
    these.to = whole < first.count ? whole : first.count;
  }
  memset(room, 0, static_cast<size_t>(job.parts * (these.to - these.from) * kPanel) * 4);
  if (job.first_group > 0) copy_sums(job, panel, these, true);
  return these;
}

void keep_remainders(const Job& job, int64_t panel, const Remainders& these) {
  if (these.begin < these.end && job.first_group + job.slice_groups < job.groups) copy_sums(job, panel, these, false);
}

void add_remainders(const Job& job, int64_t panel, const Remainders& these, int64_t first_row, int64_t last_row, float* sums, int64_t part_floats) {
  const int32_t* rows = job.first.rows;
  for (int64_t index = these.begin; index < these.end; ++index) {
    if (rows[index] < first_row || rows[index] >= last_row) continue;
    for (int64_t part = 0; part < last_part(job, panel); ++part) {
      float* to = sums + part * part_floats + (rows[index] - first_row) * kPanel;
      const float* added = these.of_part(part) + (index - these.from) * kPanel;
      for (int64_t c = 0; c < kPanel; ++c) to[c] += added[c];
    }
  }
}

}  // namespace twostroke
