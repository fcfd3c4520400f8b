// The tasks of one product. Rows are quantized and panels are multiplied, and threads divide both.
#include "twostroke/context.h"
#include "twostroke/products/linear_job.h"

namespace twostroke {
namespace {

constexpr int64_t kSerialQuantizeElements = 1 << 15;
// The rows whose results are written together, while their sums are near, where whole blocks multiply stored codes.
constexpr int64_t kFinishedRows = 96;

void quantize_one(const Job& job, int64_t row) {
  const int64_t first = job.first_group * job.w.group, left = job.w.columns - first, most = job.slice_groups * job.w.group;
  quantize_row(job.x + row * job.x_stride + first, left < most ? left : most, rounding_for(job.w), quantized_row(job.xq, row));
}

// Quantizes one row, or the remainder of one.
void quantize_task(void* arg, int64_t index, int32_t) {
  const Job& job = *static_cast<const Job*>(arg);
  if (index >= job.tokens) return round_remainder(job, index - job.tokens);
  quantize_one(job, index);
}

int64_t block_tasks(const Job& job) { return (job.tokens + kRowBlock - 1) / kRowBlock * job.slice_groups; }

// Quantizes one group of 16 rows, or the remainder of one row.
void quantize_block_task(void* arg, int64_t index, int32_t) {
  const Job& job = *static_cast<const Job*>(arg);
  if (index >= block_tasks(job)) return round_remainder(job, index - block_tasks(job));
  const int64_t row = index / job.slice_groups * kRowBlock, group = index % job.slice_groups;
  const int64_t rows = job.tokens - row < kRowBlock ? job.tokens - row : kRowBlock;
  const int64_t first = (job.first_group + group) * job.w.group, left = job.w.columns - first;
  const int64_t columns = left < job.w.group ? left : job.w.group;
  if constexpr (kLevel.has_blocks()) {
    quantize_block(job.x + row * job.x_stride + first, job.x_stride, rows, columns, job.w.rotated, quantized_group(job.xq, row, group));
  }
}

// Multiplies one panel of floats by the rows of one tile, or of several tiles at levels with a kernel for them. after: the bytes that
// are read next.
void float_rows(int32_t kind, const Panel& panel, [[maybe_unused]] const uint8_t* after, const TileRows& x, int64_t rows, float* sums) {
  if constexpr (kFloatRows > kTileRows) {
    if (rows > kTileRows) return float_tiles(kind, panel, after, x, rows, sums);
  }
  float_kernel(kind, rows)(panel, x, sums);
}

// One panel stays in the second-level cache while all rows are multiplied by it.
void float_panel(const Job& job, int64_t index, int64_t first_row, int64_t last_row, const Place& out) {
  alignas(64) float sums[kMaxParts * kFloatRows * kPanel];
  const int64_t parts = last_part(job, index);
  each_tile(first_row, last_row, kFloatRows, [&](int64_t row, int64_t rows) {
    for (int64_t part = 0; part < parts; ++part) {
      const Panel panel = panel_of(job, part_panel(job, index, part));
      const int64_t next = part + 1 < parts ? part_panel(job, index, part + 1) : index + 1;
      float_rows(job.w.kind, panel, panel_of(job, next).data, tile_rows(job, row), rows, sums + part * kFloatRows * kPanel);
    }
    job.finish(job, index, rows, sums, kFloatRows * kPanel, {out.at + (row - first_row) * out.stride, out.stride});
  });
}

}  // namespace

void quantize_slice(ts_context* context, Job& job) {
  if (job.xq.blocked) {
    ts_parallel(context, block_tasks(job) + job.first.count, quantize_block_task, &job);
  } else if (job.tokens > 1 && job.tokens * job.padded > kSerialQuantizeElements) {
    ts_parallel(context, job.tokens + job.first.count, quantize_task, &job);
  } else {
    for (int64_t index = 0; index < job.tokens + job.first.count; ++index) quantize_task(&job, index, 0);
  }
}

void round_block(const Job& job, int64_t row, int64_t rows, int64_t group, const float* x, int64_t x_stride) {
  const int64_t left = job.w.columns - group * job.w.group, columns = left < job.w.group ? left : job.w.group;
  if constexpr (kLevel.has_blocks()) {
    if (job.xq.blocked) return quantize_block(x, x_stride, rows, columns, job.w.rotated, quantized_group(job.xq, row, group));
  }
  for (int64_t r = 0; r < rows; ++r) quantize_row(x + r * x_stride, columns, rounding_for(job.w), quantized_group(job.xq, row + r, group));
}

// One group of one panel stays in the first-level cache while all rows are multiplied by it. The sums stay in the second-level cache.
void integer_panel(const Job& job, int64_t index, int64_t first_row, int64_t last_row, int32_t thread, const Place& out) {
  float* sums = reinterpret_cast<float*>(job.room + thread * job.room_bytes);
  float* const more = sums + job.parts * job.tokens * kPanel;  // the sums of remainders
  uint8_t* block = reinterpret_cast<uint8_t*>(more + job.parts * job.first.count * kPanel);
  const int64_t part_floats = (last_row - first_row) * kPanel, end = job.first_group + job.slice_groups;
  if (job.partial != nullptr) sums = job.partial + job.parts * (index * job.tokens + first_row) * kPanel;
  if (job.first_group == 0) memset(sums, 0, static_cast<size_t>(job.parts * part_floats) * 4);
  const Remainders remainders = remainders_of(job, index, first_row, last_row, more);
  const bool by_blocks = kLevel.has_blocks() && is_stored_kind(job.w.kind);
  const int64_t parts = last_part(job, index), skipped = panel_bytes(job.w.kind, job.first_group * job.w.group);
  for (int64_t part = 0; part < parts; ++part) {
    const Panel panel = panel_of(job, part_panel(job, index, part));
    const Panel next = panel_of(job, part + 1 < parts ? part_panel(job, index, part + 1) : index + 1);
    for (int64_t g = job.first_group; g < end; ++g) {
      for (int64_t line = 0; line < kPanel * 2 && next.scales != nullptr; line += 64) {
        __builtin_prefetch(next.scales + g * kPanel * 2 + line, 0, 2);
      }
      Group group = group_of(job, panel, g, next.data + skipped);
      const bool last = part + 1 == parts && g + 1 == job.groups;
      const int64_t most = last && by_blocks ? kFinishedRows : last_row - first_row;
      RowSets sets = {{}, remainders.set(job.first, part)};
      for (int64_t row = first_row; row < last_row; row += most) {
        const int64_t row_end = last_row - row < most ? last_row : row + most;
        float* const own = sums + (row - first_row) * kPanel;
        const Place at = {out.at + (row - first_row) * out.stride, out.stride};
        if (last) group.out = at;
        sets[0] = {tile_rows(job, row), row_end - row, own + part * part_floats};
        job.way->group(job.w.kind, group, sets, block);
        sets[1].rows = 0;
        if (!last) continue;
        add_remainders(job, index, remainders, row, row_end, own, part_floats);
        job.finish(job, index, row_end - row, own, part_floats, at);
      }
    }
  }
  keep_remainders(job, index, remainders);
}

void few_rows(const Job& job, int64_t first_panel, int64_t count, int32_t thread, const Place& out) {
  float* sums = reinterpret_cast<float*>(job.room + thread * job.room_bytes);
  job.way->few(job, first_panel, count, sums);
  for (int64_t i = 0; i < count; ++i) {
    float* own = sums_of(job, i, 0, sums);
    job.finish(job, first_panel + i, job.tokens, own, job.tokens * kPanel, {out.at + i * kPanel, out.stride});
  }
}

int64_t row_point(const Job& job, int64_t part) {
  const int64_t row = split_point(job.tokens, job.row_splits, part);
  if (!job.xq.blocked || row == job.tokens) return row;
  return row / kRowBlock * kRowBlock;
}

void multiply_panels(const Job& job, int64_t panel, int64_t count, int64_t first_row, int64_t last_row, int32_t thread, const Place& out) {
  if (job.way->few != nullptr) return few_rows(job, panel, count, thread, out);
  if (job.xq.blocked) blocks_begin();
  for (int64_t i = 0; i < count; ++i) {
    const Place at = {out.at + i * kPanel, out.stride};
    if (is_integer_kind(job.w.kind)) {
      integer_panel(job, panel + i, first_row, last_row, thread, at);
    } else {
      float_panel(job, panel + i, first_row, last_row, at);
    }
  }
  if (job.xq.blocked) blocks_end();
}

void multiply_task(void* arg, int64_t index, int32_t thread) {
  const Job& job = *static_cast<const Job*>(arg);
  const int64_t panel = index / job.row_splits * job.panels_each, left = job.panels - panel;
  const int64_t row_part = index % job.row_splits;
  const int64_t first_row = row_point(job, row_part), last_row = row_point(job, row_part + 1);
  if (first_row == last_row) return;  // rows of a block were not divided so far
  const int64_t count = left < job.panels_each ? left : job.panels_each;
  multiply_panels(job, panel, count, first_row, last_row, thread, place_of(job, panel, first_row));
}

// A task is one panel, or as many panels as few rows stream at once. A thread takes consecutive panels, so that it reads without a pause.
// Rows are split only where tasks are too few to even out the threads' speeds.
void choose_splits(Job& job, int64_t tasks, int64_t threads) {
  job.row_splits = 1;
  if (job.way->few != nullptr) return;
  const int64_t wanted = threads == 1 ? 1 : threads * 4;
  const int64_t row_parts = (wanted + tasks - 1) / tasks;
  const int64_t most = (job.tokens + 4 * kTileRows - 1) / (4 * kTileRows);
  job.row_splits = row_parts < most ? row_parts : most;
}

}  // namespace twostroke
