// ts_linear: checks shapes, quantizes rows, shares panels and rows out to threads, writes tiles with bias.
// Knows: packed layouts, tiles, the thread pool. Must not know: vector instructions.
// Work is split over outputs alone, never over k, and every tile kernel treats a row alike, so a row's result depends on
// that row only.
#include "twostroke/linear.h"

#include "twostroke/context.h"

namespace twostroke {

int32_t check_weight(const ts_weight* w) {
  if (w == nullptr || w->data == nullptr) return TS_BAD_POINTER;
  if (w->kind < TS_W_F32 || w->kind > TS_W_INT4) return TS_BAD_FORMAT;
  if (w->rows <= 0 || w->columns <= 0) return TS_BAD_SHAPE;
  if (reinterpret_cast<uintptr_t>(w->data) % 4 != 0) return TS_BAD_POINTER;
  if (!is_integer_kind(w->kind)) return w->group == 0 ? TS_OK : TS_BAD_FORMAT;
  if (w->group <= 0 || w->group % 32 != 0 || w->group > 8192) return TS_BAD_FORMAT;  // 8192 * 255 * 127 fits int32
  return w->scales == nullptr ? TS_BAD_POINTER : TS_OK;
}

namespace {

// Enough rows that streaming the weights costs little, few enough that their int8 form stays in the caches.
constexpr int64_t kChunkBytes = 4 << 20;
constexpr int64_t kSerialQuantizeElements = 1 << 15;

struct Job {
  ts_weight w;
  const float* x;
  int64_t x_stride, tokens;
  float* out;
  int64_t out_stride;
  int64_t padded, groups, panels;
  int8_t* q;
  float* scales;
  int32_t* corrections;
  int64_t panel_splits, row_splits;
};

int64_t split_point(int64_t total, int64_t parts, int64_t i) { return total / parts * i + (total % parts) * i / parts; }

void quantize_one(const Job& job, int64_t row) {
  quantize_row(job.x + row * job.x_stride, job.w.columns, job.w.group, weight_offset(job.w.kind), job.q + row * job.padded,
               job.scales + row * job.groups, job.corrections + row * job.groups);
}

void quantize_task(void* arg, int64_t row, int32_t) { quantize_one(*static_cast<const Job*>(arg), row); }

// sums (rows, 64) plus bias into `width` columns of out.
void store_tile(const Job& job, int64_t panel, int64_t first_row, int64_t rows, const float* sums) {
  const int64_t column = panel * kPanel;
  const int64_t width = job.w.rows - column < kPanel ? job.w.rows - column : kPanel;
  for (int64_t r = 0; r < rows; ++r) {
    float* out = job.out + (first_row + r) * job.out_stride + column;
    const float* from = sums + r * kPanel;
    if (job.w.bias == nullptr) {
      memcpy(out, from, static_cast<size_t>(width) * 4);
      continue;
    }
    const float* bias = job.w.bias + column;
    for (int64_t c = 0; c < width; ++c) out[c] = from[c] + bias[c];
  }
}

TileRows tile_rows(const Job& job, int64_t row) {
  TileRows rows = {};
  if (is_integer_kind(job.w.kind)) {
    rows.q = job.q + row * job.padded;
    rows.q_stride = job.padded;
    rows.scales = job.scales + row * job.groups;
    rows.corrections = job.corrections + row * job.groups;
    rows.groups = job.groups;
  } else {
    rows.x = job.x + row * job.x_stride;
    rows.x_stride = job.x_stride;
  }
  return rows;
}

Panel panel_of(const Job& job, int64_t index) {
  Panel panel = {};
  panel.data = static_cast<const uint8_t*>(job.w.data) + index * panel_bytes(job.w.kind, job.padded);
  panel.columns = is_integer_kind(job.w.kind) ? job.padded : job.w.columns;
  panel.group = job.w.group;
  if (job.w.scales != nullptr) {
    panel.scales = reinterpret_cast<const uint8_t*>(job.w.scales) + index * job.groups * kPanel * 2;
  }
  return panel;
}

// One panel stays in the second-level cache while the rows pass by, in tiles of nearly equal height.
void multiply_panel(const Job& job, int64_t index, int64_t first_row, int64_t last_row) {
  alignas(64) float sums[kTileRows * kPanel];
  const Panel panel = panel_of(job, index);
  const int64_t tiles = (last_row - first_row + kTileRows - 1) / kTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + split_point(last_row - first_row, tiles, t);
    const int64_t rows = first_row + split_point(last_row - first_row, tiles, t + 1) - row;
    tile_kernel(job.w.kind, rows)(panel, tile_rows(job, row), sums);
    store_tile(job, index, row, rows, sums);
  }
}

void multiply_task(void* arg, int64_t index, int32_t) {
  const Job& job = *static_cast<const Job*>(arg);
  const int64_t panel_part = index / job.row_splits;
  const int64_t row_part = index % job.row_splits;
  const int64_t first_row = split_point(job.tokens, job.row_splits, row_part);
  const int64_t last_row = split_point(job.tokens, job.row_splits, row_part + 1);
  const int64_t last_panel = split_point(job.panels, job.panel_splits, panel_part + 1);
  for (int64_t p = split_point(job.panels, job.panel_splits, panel_part); p < last_panel; ++p) {
    multiply_panel(job, p, first_row, last_row);
  }
}

// Four tasks a thread even out their speeds; rows are split only where panels are too few for that.
void choose_splits(Job& job, int64_t threads) {
  const int64_t wanted = threads == 1 ? 1 : threads * 4;
  job.panel_splits = job.panels < wanted ? job.panels : wanted;
  const int64_t row_parts = (wanted + job.panel_splits - 1) / job.panel_splits;
  const int64_t most = (job.tokens + 4 * kTileRows - 1) / (4 * kTileRows);
  job.row_splits = row_parts < most ? row_parts : most;
}

int32_t quantize_rows(ts_context* context, Job& job) {
  const int64_t q_bytes = round_up(job.tokens * job.padded, 64);
  const int64_t pairs_bytes = round_up(job.tokens * job.groups * 4, 64);
  uint8_t* scratch = static_cast<uint8_t*>(ts_scratch(context, static_cast<size_t>(q_bytes + 2 * pairs_bytes)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  job.q = reinterpret_cast<int8_t*>(scratch);
  job.scales = reinterpret_cast<float*>(scratch + q_bytes);
  job.corrections = reinterpret_cast<int32_t*>(scratch + q_bytes + pairs_bytes);
  if (job.tokens > 1 && job.tokens * job.padded > kSerialQuantizeElements) {
    ts_parallel(context, job.tokens, quantize_task, &job);
  } else {
    for (int64_t row = 0; row < job.tokens; ++row) quantize_one(job, row);
  }
  return TS_OK;
}

int32_t multiply_chunk(ts_context* context, Job& job) {
  if (is_integer_kind(job.w.kind)) {
    const int32_t status = quantize_rows(context, job);
    if (status != TS_OK) return status;
  }
  choose_splits(job, ts_threads(context));
  ts_parallel(context, job.panel_splits * job.row_splits, multiply_task, &job);
  return TS_OK;
}

}  // namespace
}  // namespace twostroke

extern "C" int32_t ts_linear(ts_context* context, const ts_weight* w, const float* x, int64_t x_stride, int64_t tokens,
                             float* out, int64_t out_stride) {
  using namespace twostroke;
  const int32_t status = check_weight(w);
  if (status != TS_OK) return status;
  if (tokens < 0 || x_stride < w->columns || out_stride < w->rows) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (context == nullptr || x == nullptr || out == nullptr) return TS_BAD_POINTER;
  Job job = {};
  job.w = *w;
  job.x_stride = x_stride;
  job.out_stride = out_stride;
  job.padded = padded_columns(w->kind, w->columns, w->group);
  job.groups = w->group > 0 ? job.padded / w->group : 0;
  job.panels = (w->rows + kPanel - 1) / kPanel;
  int64_t chunk = kChunkBytes / job.padded / kTileRows * kTileRows;
  if (chunk < 16 * kTileRows) chunk = 16 * kTileRows;
  for (int64_t first = 0; first < tokens; first += chunk) {
    job.x = x + first * x_stride;
    job.out = out + first * out_stride;
    job.tokens = tokens - first < chunk ? tokens - first : chunk;
    const int32_t done = multiply_chunk(context, job);
    if (done != TS_OK) return done;
  }
  return TS_OK;
}
