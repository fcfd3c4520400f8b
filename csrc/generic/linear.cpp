// ts_linear and its kin: check shapes, quantize rows, share panels and rows out to threads.
// Knows: packed layouts, tiles, the thread pool. Must not know: vector instructions, what becomes of the sums.
// Work is split over outputs alone, never over k, and every tile kernel treats a row alike, so a row's result depends on
// that row only.
#include "twostroke/linear_job.h"

#include "twostroke/context.h"

namespace twostroke {

int32_t check_weight(const ts_weight* w) {
  if (w == nullptr || w->data == nullptr) return TS_BAD_POINTER;
  if (w->kind < TS_W_F32 || w->kind > TS_W_INT4) return TS_BAD_FORMAT;
  if (w->rows <= 0 || w->columns <= 0) return TS_BAD_SHAPE;
  if (reinterpret_cast<uintptr_t>(w->data) % 4 != 0) return TS_BAD_POINTER;
  if (!is_integer_kind(w->kind)) return w->group == 0 ? TS_OK : TS_BAD_FORMAT;
  if (w->group <= 0 || w->group % kStep != 0 || w->group > kMaxGroup) return TS_BAD_FORMAT;  // 1024 * 255 * 127 fits int32
  return w->scales == nullptr ? TS_BAD_POINTER : TS_OK;
}

namespace {

// Enough rows that streaming the weights costs little, few enough that their int8 form stays in a second-level cache.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kLeastChunkRows = 128;
constexpr int64_t kSerialQuantizeElements = 1 << 15;

int64_t split_point(int64_t total, int64_t parts, int64_t i) { return total / parts * i + (total % parts) * i / parts; }

void quantize_one(const Job& job, int64_t row) {
  quantize_row(job.x + row * job.x_stride, job.w.columns, job.w.group, q_row(job, row), job.matrix ? kMatrixTileBytes : kStep,
               job.scales + row * job.groups, job.corrections + row * job.groups,
               job.sub_corrections + row * (job.padded / kSubgroup));
}

void quantize_task(void* arg, int64_t row, int32_t) { quantize_one(*static_cast<const Job*>(arg), row); }

// Rows in tiles of nearly equal height: calls tile(first row, rows).
template <class Tile>
void each_tile(int64_t first_row, int64_t last_row, int64_t most, const Tile& tile) {
  const int64_t tiles = (last_row - first_row + most - 1) / most;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + split_point(last_row - first_row, tiles, t);
    tile(row, first_row + split_point(last_row - first_row, tiles, t + 1) - row);
  }
}

// One panel stays in the second-level cache while the rows pass by.
void float_panel(const Job& job, int64_t index, int64_t first_row, int64_t last_row) {
  alignas(64) float sums[kMaxParts * kTileRows * kPanel];
  each_tile(first_row, last_row, kTileRows, [&](int64_t row, int64_t rows) {
    for (int64_t part = 0; part < last_part(job, index); ++part) {
      const Panel panel = panel_of(job, part_panel(job, index, part));
      float_kernel(job.w.kind, rows)(panel, tile_rows(job, row), sums + part * kTileRows * kPanel);
    }
    job.finish(job, index, row, rows, sums, kTileRows * kPanel);
  });
}

// One group of one panel stays in the first-level cache while all rows pass by; the sums wait in the second.
void integer_group(const Job& job, const Group& group, int64_t first_row, int64_t last_row, float* sums, uint8_t* block) {
  const int64_t count = last_row - first_row;
  if (job.matrix) return matrix_group(job.w.kind, group, tile_rows(job, first_row), count, block, sums);
  const bool packed = job.w.kind == TS_W_INT4;
  if (packed && count <= kInt4Rows) return int4_kernel(count)(group.data, group, tile_rows(job, first_row), sums);
  const uint8_t* bytes = group.data;
  if (packed) {
    unpack_int4(group.data, group.columns, block);
    bytes = block;
  }
  each_tile(first_row, last_row, kTileRows, [&](int64_t row, int64_t rows) {
    int8_kernel(rows)(bytes, group, tile_rows(job, row), sums + (row - first_row) * kPanel);
  });
}

void integer_panel(const Job& job, int64_t index, int64_t first_row, int64_t last_row, int32_t thread) {
  float* sums = reinterpret_cast<float*>(job.room + thread * job.room_bytes);
  const int64_t part_floats = (last_row - first_row) * kPanel;
  uint8_t* block = reinterpret_cast<uint8_t*>(sums + job.parts * job.tokens * kPanel);
  memset(sums, 0, static_cast<size_t>(job.parts * part_floats) * 4);
  const int64_t parts = last_part(job, index);
  for (int64_t part = 0; part < parts; ++part) {
    const Panel panel = panel_of(job, part_panel(job, index, part));
    const Panel next = panel_of(job, part + 1 < parts ? part_panel(job, index, part + 1) : index + 1);
    for (int64_t g = 0; g < job.groups; ++g) {
      for (int64_t line = 0; line < kPanel * 2; line += 64) __builtin_prefetch(next.scales + g * kPanel * 2 + line, 0, 2);
      integer_group(job, group_of(job, panel, g, next.data), first_row, last_row, sums + part * part_floats, block);
    }
  }
  job.finish(job, index, first_row, last_row - first_row, sums, part_floats);
}

// Rows of matrix tiles are not parted.
int64_t row_point(const Job& job, int64_t part) {
  const int64_t row = split_point(job.tokens, job.row_splits, part);
  if (!job.matrix || row == job.tokens) return row;
  return row / kMatrixTileRows * kMatrixTileRows;
}

void multiply_task(void* arg, int64_t index, int32_t thread) {
  const Job& job = *static_cast<const Job*>(arg);
  const int64_t panel = index / job.row_splits * job.panels_each;
  const int64_t row_part = index % job.row_splits;
  const int64_t first_row = row_point(job, row_part), last_row = row_point(job, row_part + 1);
  if (first_row == last_row) return;  // rows of matrix tiles were not parted so far
  if (!is_integer_kind(job.w.kind)) return float_panel(job, panel, first_row, last_row);
  if (job.streamed && panel + job.panels_each <= job.panels) return stream_panels(job, panel, thread);
  if (job.matrix) matrix_begin();
  for (int64_t p = panel; p < panel + job.panels_each && p < job.panels; ++p) integer_panel(job, p, first_row, last_row, thread);
  if (job.matrix) matrix_end();
}

// A task is one panel, or as many as few rows stream at once; a thread takes those beside each other, so that it reads on without
// a pause. Rows are split only where panels are too few to even out the threads' speeds.
void choose_splits(Job& job, int64_t threads) {
  job.row_splits = 1;
  if (job.streamed) return;
  const int64_t wanted = threads == 1 ? 1 : threads * 4;
  const int64_t row_parts = (wanted + job.panels - 1) / job.panels;
  const int64_t most = (job.tokens + 4 * kTileRows - 1) / (4 * kTileRows);
  job.row_splits = row_parts < most ? row_parts : most;
}

// Lays the scratch memory out; all parts begin at multiples of 64 bytes.
int32_t take_room(ts_context* context, Job& job) {
  job.matrix = job.tokens >= kMatrixRows;
  job.panels_each = job.tokens <= kStreamRows ? streamed_panels(job) : 0;
  job.streamed = job.panels_each > 0;
  if (!job.streamed) job.panels_each = 1;
  const int64_t rows = job.matrix ? round_up(job.tokens, 2 * kMatrixTileRows) : job.tokens;
  // Rows: one line more than the columns need, for rows a power of two apart would fight for the same few sets of the cache.
  job.q_stride = job.matrix ? job.padded * kMatrixTileRows : job.padded + 64;
  const int64_t q_bytes = (job.matrix ? rows / kMatrixTileRows : rows) * job.q_stride;
  const int64_t pairs_bytes = round_up(job.tokens * job.groups * 4, 64);
  const int64_t subgroup_bytes = round_up(job.tokens * (job.padded / kSubgroup) * 4, 64);
  job.room_bytes = job.panels_each * job.parts * job.tokens * kPanel * 4 + kPanel * kMaxGroup;
  const int64_t total = q_bytes + 2 * pairs_bytes + subgroup_bytes + ts_threads(context) * job.room_bytes;
  uint8_t* scratch = static_cast<uint8_t*>(ts_scratch(context, static_cast<size_t>(total)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job.q = reinterpret_cast<int8_t*>(scratch);
  if (rows > job.tokens) {  // what no row fills is multiplied all the same
    const int64_t filled = job.tokens / kMatrixTileRows * job.q_stride;
    memset(job.q + filled, 0, static_cast<size_t>(q_bytes - filled));
  }
  job.scales = reinterpret_cast<float*>(scratch + q_bytes);
  job.corrections = reinterpret_cast<int32_t*>(scratch + q_bytes + pairs_bytes);
  job.sub_corrections = reinterpret_cast<int32_t*>(scratch + q_bytes + 2 * pairs_bytes);
  job.room = scratch + q_bytes + 2 * pairs_bytes + subgroup_bytes;
  return TS_OK;
}

int32_t quantize_rows(ts_context* context, Job& job) {
  const int32_t status = take_room(context, job);
  if (status != TS_OK) return status;
  if (job.tokens > 1 && job.tokens * job.padded > kSerialQuantizeElements) {
    ts_parallel(context, job.tokens, quantize_task, &job);
  } else {
    for (int64_t row = 0; row < job.tokens; ++row) quantize_one(job, row);
  }
  return TS_OK;
}

int32_t multiply_chunk(ts_context* context, Job& job) {
  job.panels_each = 1;
  if (is_integer_kind(job.w.kind)) {
    const int32_t status = quantize_rows(context, job);
    if (status != TS_OK) return status;
  }
  choose_splits(job, ts_threads(context));
  ts_parallel(context, (job.panels + job.panels_each - 1) / job.panels_each * job.row_splits, multiply_task, &job);
  return TS_OK;
}

int32_t run(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out, int64_t out_stride,
            int64_t gated, Finish finish) {
  const int64_t columns_out = gated > 0 ? gated : w->rows;
  if (tokens < 0 || x_stride < w->columns || out_stride < columns_out) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (context == nullptr || x == nullptr || out == nullptr) return TS_BAD_POINTER;
  Job job = {};
  job.w = *w;
  job.x_stride = x_stride;
  job.out_stride = out_stride;
  job.gated = gated;
  job.parts = gated == 0 ? 1 : gated % kPanel == 0 ? 2 : kMaxParts;
  job.finish = finish;
  job.padded = padded_columns(w->kind, w->columns);
  job.groups = w->group > 0 ? (job.padded + w->group - 1) / w->group : 0;
  job.panels = (columns_out + kPanel - 1) / kPanel;
  int64_t chunk = kChunkBytes / job.padded / 32 * 32;
  if (chunk < kLeastChunkRows) chunk = kLeastChunkRows;
  for (int64_t first = 0; first < tokens; first += chunk) {
    job.x = x + first * x_stride;
    job.out = out + first * out_stride;
    job.tokens = tokens - first < chunk ? tokens - first : chunk;
    const int32_t done = multiply_chunk(context, job);
    if (done != TS_OK) return done;
  }
  return TS_OK;
}

}  // namespace
}  // namespace twostroke

int32_t ts_linear(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                  int64_t out_stride) {
  const int32_t status = twostroke::check_weight(w);
  return status != TS_OK ? status : twostroke::run(context, w, x, x_stride, tokens, out, out_stride, 0, twostroke::finish_store);
}

int32_t ts_linear_add(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                      int64_t out_stride) {
  const int32_t status = twostroke::check_weight(w);
  return status != TS_OK ? status : twostroke::run(context, w, x, x_stride, tokens, out, out_stride, 0, twostroke::finish_add);
}

int32_t ts_linear_silu(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens, float* out,
                       int64_t out_stride) {
  const int32_t status = twostroke::check_weight(w);
  if (status != TS_OK) return status;
  if (w->rows % 2 != 0) return TS_BAD_SHAPE;
  return twostroke::run(context, w, x, x_stride, tokens, out, out_stride, w->rows / 2, twostroke::finish_silu);
}
