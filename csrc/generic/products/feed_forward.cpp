// ts_feed_forward: out += down(silu(gate(x)) * up(x)). With many rows, the (tokens, F) floats between the products would be written to
// memory and read again only to be rounded to int8. Here a task computes the columns that share a scale in the second-level cache, and
// rounds them there. The bits are those of ts_linear_silu and then ts_linear_add.
#include <initializer_list>

#include "twostroke/context.h"
#include "twostroke/products/linear_job.h"

namespace twostroke {
namespace {

struct FeedForward {
  Job gate, down;
  float* middle;  // for each thread: the columns of its rows that share a scale
  int64_t middle_floats;
};

// first and width are whole panels; see can_fuse.
void gate_few(const Job& gate, int64_t first, int64_t width, int32_t thread, float* middle) {
  const int64_t most = gate.panels_each * kPanel;
  for (int64_t c = 0; c < width; c += most) {
    few_rows(gate, (first + c) / kPanel, (width - c < most ? width - c : most) / kPanel, thread, {middle + c, width});
  }
}

// Computes all columns of one scale between the products, for some rows.
void gate_task(void* arg, int64_t index, int32_t thread) {
  const FeedForward& all = *static_cast<const FeedForward*>(arg);
  const Job &gate = all.gate, &down = all.down;
  const int64_t group = index / gate.row_splits, part = index % gate.row_splits;
  const int64_t first_row = row_point(gate, part), last_row = row_point(gate, part + 1);
  if (first_row == last_row) return;
  const int64_t first = group * down.w.group, left = gate.gated - first, width = left < down.w.group ? left : down.w.group;
  float* middle = all.middle + thread * all.middle_floats;
  if (gate.way->few != nullptr) {
    gate_few(gate, first, width, thread, middle);
  } else {
    blocks_begin();
    for (int64_t c = 0; c < width; c += kPanel) {
      integer_panel(gate, (first + c) / kPanel, first_row, last_row, thread, {middle + c, width});
    }
    blocks_end();
  }
  round_remainders(down, first_row, last_row, group, middle, width);
  for (int64_t row = first_row; row < last_row; row += kRowBlock) {
    const int64_t rows = last_row - row < kRowBlock ? last_row - row : kRowBlock;
    round_block(down, row, rows, group, middle + (row - first_row) * width, width);
  }
}

// The number of rows from which on products of stored codes are fused. With 9 to 16 rows it takes 1 to 2% longer.
constexpr int64_t kFusedStoredRows = kLevel.has_blocks() ? kRowBlock + 1 : kNever;

// Whether both products can be fused. There must be enough rows, in the same form for both products. No panel may have two scales between
// the products, and x must be in one slice.
bool can_fuse(const ts_context* context, const Job& gate, const Job& down) {
  const bool stored = is_stored_kind(gate.w.kind);
  if (!is_integer_kind(gate.w.kind) || !is_integer_kind(down.w.kind) || stored != is_stored_kind(down.w.kind)) return false;
  if (gate.tokens < (stored ? kFusedStoredRows : kBlockedRows)) return false;
  Job whole = gate;
  lay_out(whole, context, nullptr);
  return gate.gated % kPanel == 0 && whole.slice_groups == whole.groups;
}

int64_t lay_out_both(FeedForward& all, const ts_context* context, uint8_t* scratch) {
  Job &gate = all.gate, &down = all.down;
  const auto from = [&](int64_t used) { return scratch == nullptr ? nullptr : scratch + used; };
  int64_t used = lay_out(gate, context, scratch);
  used += lay_out_rows(down.xq, down.w, down.padded, down.groups, from(used));
  all.middle = reinterpret_cast<float*>(from(used));
  used += ts_threads(context) * all.middle_floats * 4;
  return used + lay_out_given(down, context, from(used));
}

int32_t run_fused(ts_context* context, FeedForward& all, const int32_t* positions) {
  Job &gate = all.gate, &down = all.down;
  gate.first.count = down.first.count = count_first(gate.w, positions, gate.tokens);
  down.xq.blocked = !is_stored_kind(down.w.kind);
  down.xq.rows = gate.tokens;
  all.middle_floats = gate.tokens * down.w.group;
  const int64_t bytes = lay_out_both(all, context, nullptr);
  uint8_t* scratch = static_cast<uint8_t*>(ts_scratch(context, static_cast<size_t>(bytes)));
  if (scratch == nullptr) return TS_NO_MEMORY;
  lay_out_both(all, context, scratch);
  for (Job* job : {&gate, &down}) find_first(job->first, positions, gate.tokens);
  quantize_slice(context, gate);
  choose_splits(gate, down.groups, ts_threads(context));
  ts_parallel(context, down.groups * gate.row_splits, gate_task, &all);
  multiply_given(context, down);
  return TS_OK;
}

}  // namespace

int32_t feed_forward(ts_context* context, const ts_weight* gate_up, const ts_weight* down, const ProductRows& rows, float* middle,
                     int64_t middle_stride) {
  int32_t status = check_weight(gate_up);
  if (status == TS_OK) status = check_weight(down);
  if (status != TS_OK) return status;
  const int64_t gated = gate_up->rows / 2;
  if (gate_up->rows % 2 != 0 || down->columns != gated || rows.tokens < 0) return TS_BAD_SHAPE;
  if (rows.x_stride < gate_up->columns || middle_stride < gated || rows.out_stride < down->rows) return TS_BAD_SHAPE;
  if (rows.tokens == 0) return TS_OK;
  if (context == nullptr || rows.x == nullptr || middle == nullptr || rows.out == nullptr) return TS_BAD_POINTER;
  FeedForward all = {};
  all.gate = make_job(*gate_up, rows.x, rows.x_stride, middle, middle_stride, gated, finish_silu);
  all.down = make_job(*down, middle, middle_stride, rows.out, rows.out_stride, 0, finish_add);
  const int64_t chunk = chunk_rows(all.gate, chunk_rows(all.down, rows.tokens));
  for (int64_t first = 0; first < rows.tokens && status == TS_OK; first += chunk) {
    const int64_t count = rows.tokens - first < chunk ? rows.tokens - first : chunk;
    const int32_t* positions = rows.positions == nullptr ? nullptr : rows.positions + first;
    FeedForward part = all;
    part.gate.x += first * rows.x_stride;
    part.down.out += first * rows.out_stride;
    part.gate.tokens = part.down.tokens = count;
    if (can_fuse(context, part.gate, part.down)) {
      status = run_fused(context, part, positions);
      continue;
    }
    float* between = middle + first * middle_stride;
    status = multiply(context, gate_up, {part.gate.x, rows.x_stride, count, between, middle_stride, positions}, gated, finish_silu);
    if (status != TS_OK) return status;
    status = multiply(context, down, {between, middle_stride, count, part.down.out, rows.out_stride, positions}, 0, finish_add);
  }
  return status;
}

}  // namespace twostroke

int32_t ts_feed_forward(ts_context* context, const ts_weight* gate_up, const ts_weight* down, const float* x, int64_t x_stride,
                        int64_t tokens, float* middle, int64_t middle_stride, float* out, int64_t out_stride) {
  return twostroke::feed_forward(context, gate_up, down, {x, x_stride, tokens, out, out_stride, nullptr}, middle, middle_stride);
}
