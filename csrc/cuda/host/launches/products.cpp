// Products with packed weights. Where weights are whole numbers, activations are first rounded to int8, kRowsAtOnce rows at a time, so that
// scratch memory stays small. A row's bits do not depend on the rows that are computed with it.
#include "twostroke/cuda/host/product.h"
#include "twostroke/cuda/machine/words.h"
#include "twostroke/cuda/products/packed.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kNarrowBlocks = 2;  // the blocks of linear_narrow that a multiprocessor holds at once

// The places of rounded activations in scratch memory: int8 numbers, their scales and their corrections.
struct Rounded {
  int64_t padded, groups, q_bytes, pair_bytes;

  Rounded(const ts_weight& w, int64_t rows)
      : padded(padded_columns(w.kind, w.columns)), groups(w.group == 0 ? 0 : divide_up(padded, w.group)), q_bytes(0), pair_bytes(0) {
    if (!is_integer_kind(w.kind)) return;
    q_bytes = round_up(rows * padded);
    pair_bytes = round_up(rows * groups * 4);
  }
};

LinearArgs arguments_of(const ts_weight& w, const Rounded& rounded, const ProductRows& rows) {
  LinearArgs args = {};
  args.out = rows.out;
  args.x = rows.x;
  args.data = static_cast<const uint8_t*>(w.data);
  args.scales = w.scales;
  args.bias = w.bias;
  args.matrices = rows.matrices;
  args.out_stride = rows.out_stride;
  args.x_stride = rows.x_stride;
  args.tokens = rows.count;
  args.rows = w.rows;
  args.columns = w.columns;
  args.padded = rounded.padded;
  args.group = w.group;
  args.rotated = w.rotated;
  args.groups = rounded.groups;
  args.panels = divide_up(w.rows, kPanel);
  args.panel_bytes = panel_bytes(w.kind, rounded.padded);
  args.kind = w.kind;
  args.add = rows.add;
  args.gated = rows.gated;
  args.stored = stored_layout(w.kind);
  return args;
}

// The shape of a kernel whose blocks go through strips of a matrix: the rows of a strip, the blocks on a multiprocessor, and the threads of
// a block.
struct StripShape {
  int64_t strip, blocks;
  int32_t threads;
};

// The blocks of the kernels of stored kinds have eight threads for each group of a row, as far as a block can be that large.
StripShape stored_strips(int64_t groups) {
  constexpr int64_t kOfGroup = kStoredStrip / 4, kMostWarps = kStoredThreads / kWarp;
  const int64_t wanted = divide_up(groups * kOfGroup, kWarp), warps = wanted < kMostWarps ? wanted : kMostWarps;
  return {kStoredStrip, kMostWarps / warps, static_cast<int32_t>(warps * kWarp)};
}

KernelNumber stored_kernel(int32_t kind) {
  switch (kind) {
    case TS_W_FLAT4: return kKernel_linear_stored_flat4;
    case TS_W_FLAT8: return kKernel_linear_stored_flat8;
    case TS_W_SUPER4_MIN: return kKernel_linear_stored_super4_min;
    case TS_W_SUPER6: return kKernel_linear_stored_super6;
    default: return kKernel_linear_stored;
  }
}

// Returns the shape of a kernel for rows of some groups. The strip is 0 for a kernel without strips.
StripShape strip_shape(KernelNumber kernel, int64_t groups) {
  switch (kernel) {
    case kKernel_linear_one: return {kOneStrip, 1, kOneThreads};
    case kKernel_linear_few: return {kFewStrip, 2, kFewThreads};
    case kKernel_linear_row_int8:
    case kKernel_linear_row_int4:
    case kKernel_linear_rows_int8:
    case kKernel_linear_rows_int4: return {kStreamStrip, 2, kStreamThreads};
    case kKernel_linear_stored:
    case kKernel_linear_stored_flat4:
    case kKernel_linear_stored_flat8:
    case kKernel_linear_stored_super4_min:
    case kKernel_linear_stored_super6: return stored_strips(groups);
    default: return {0, 0, 0};
  }
}

// grids: the number of rows of activations that are multiplied separately.
int32_t start_strips(ts_context& device, KernelNumber kernel, int64_t grids, LinearArgs& args) {
  const StripShape shape = strip_shape(kernel, args.groups);
  const int64_t tiles = kernel == kKernel_linear_few && args.tokens > kFewRows ? divide_up(args.tokens, kFewTile) : 1;
  const int64_t strips = divide_up(args.gated != 0 ? args.rows / 2 : args.rows, shape.strip) * tiles;
  const int64_t blocks = divide_up(shape.blocks * device.multiprocessors, grids);
  args.parts = strips < blocks ? strips : blocks;
  return start(device, kernel, grids * args.parts, shape.threads, &args);
}

// Returns the kernel that streams the weights of a product with up to kStreamRows rows, or kKernels where none can.
KernelNumber streaming_kernel(const ts_weight& w, int64_t rows) {
  if (w.group != kStreamGroup || rows > kStreamRows || w.rows > INT32_MAX / 2) return kKernels;
  if (w.rows * divide_up(w.columns, kStreamGroup) > INT32_MAX) return kKernels;
  const bool one = rows == 1 && w.columns <= kStreamColumns;  // this kernel rounds its row itself
  if (w.kind == TS_W_INT8) return one ? kKernel_linear_row_int8 : kKernel_linear_rows_int8;
  if (w.kind == TS_W_INT4) return one ? kKernel_linear_row_int4 : kKernel_linear_rows_int4;
  return kKernels;
}

bool rounds_itself(KernelNumber kernel) {
  return kernel != kKernel_linear_few && kernel != kKernel_linear_rows_int8 && kernel != kKernel_linear_rows_int4;
}

// Returns the kernel for a product. Where a matrix has few panels, tiles of whole panels leave too many multiprocessors idle. Up to
// kNarrowTokens rows are then multiplied by strips, whose columns are divided among warps.
KernelNumber kernel_for(const ts_context& device, const ts_weight& w, bool bank, int64_t rows) {
  const KernelNumber streaming = bank ? kKernels : streaming_kernel(w, rows);
  if (streaming != kKernels) return streaming;
  const bool few_panels = divide_up(w.rows, kPanel) < kNarrowBlocks * device.multiprocessors;
  if (!bank && few_panels && rows > kFewRows && rows <= kNarrowTokens && (w.kind == TS_W_INT8 || w.kind == TS_W_INT4)) return kKernel_linear_few;
  return product_kernel(w.kind, bank, rows);
}

// Whether a kernel can apply the gate itself. It can where both halves begin at the beginning of a strip.
bool gates_itself(const ts_context& device, const ts_weight& w, int64_t rows) {
  if (gates_prompt(device, w, rows)) return true;
  const int64_t strip = strip_shape(kernel_for(device, w, false, rows), 1).strip;
  return strip != 0 ? w.rows / 2 % strip == 0 : tiles_gate(device, w, rows);
}

// Whether the positions of all rows are given, or none.
bool has_positions(const ts_indices& positions, int64_t rows) { return positions.data == nullptr || positions.count == rows; }

// The bytes of scratch memory for rows with two codes, where a product has any.
int64_t more_scratch(const ts_weight& w, const ts_indices& positions, int64_t rows) {
  FirstRows first;
  take_rows(first, w, positions, 0, rows);
  return first.count == 0 ? 0 : first_scratch(w);
}

// The number of rows of a gated product, of at most `rows`, that one launch may have.
int64_t gated_rows(const ts_context& device, const ts_weight& w, int64_t rows) {
  if (rows > kRowsAtOnce) rows = kRowsAtOnce;
  return rows <= kGatedRows || gates_itself(device, w, rows) ? rows : kGatedRows;
}

// Starts a gated product. Where the product's kernel cannot gate, both halves of at most kGatedRows rows go to `both`, and another kernel
// multiplies them.
int32_t start_gated(ts_context& device, const ts_weight& w, uint64_t scratch, float* both, const ProductRows& rows) {
  if (gates_itself(device, w, rows.count)) return start_product(device, w, scratch, kGatedRows, rows);
  const ProductRows halves = {rows.x, rows.x_stride, rows.count, both, w.rows, false, nullptr};
  const int32_t status = start_product(device, w, scratch, kGatedRows, halves);
  if (status != TS_OK) return status;
  const ts_value out = {rows.out, rows.out_stride, rows.count, 1, w.rows / 2};
  const ts_gate_args gate = {out, {both, w.rows, rows.count, 1, w.rows}, 0, 0.0, 0.0, 0};
  return launch(device, gate);
}

// Computes silu of the first half of the product times the second half.
int32_t gated_product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight, const ts_indices& positions) {
  int32_t status = check_weight(weight);
  if (status != TS_OK) return status;
  if (out.rows != x.rows || width_of(x) != weight->columns || 2 * width_of(out) != weight->rows || weight->experts != 0) return TS_BAD_SHAPE;
  if (!has_positions(positions, x.rows)) return TS_BAD_SHAPE;
  const int64_t bytes = product_scratch(*weight, kGatedRows), of_more = product_scratch(*weight, kRowsAtOnce);  // without both halves
  const int64_t with_both = bytes + round_up(kGatedRows * weight->rows * 4), most = with_both < of_more ? of_more : with_both;
  const uint64_t scratch = scratch_of(device, most + more_scratch(*weight, positions, x.rows), &status);
  float* both = reinterpret_cast<float*>(scratch + static_cast<uint64_t>(bytes));
  const uint64_t more = scratch + static_cast<uint64_t>(most);
  FirstRows some;
  for (int64_t first = 0, count = 0; first < x.rows && status == TS_OK; first += count) {
    count = take_rows(some, *weight, positions, first, gated_rows(device, *weight, x.rows - first));
    if (gated_rows(device, *weight, count) < count) count = take_rows(some, *weight, positions, first, kGatedRows);
    const ProductRows rows = {x.data + first * x.stride, x.stride, count, out.data + first * out.stride, out.stride, false, nullptr, true};
    status = start_first(device, *weight, more, some, rows);
    if (status == TS_OK && some.count < count) status = start_gated(device, *weight, scratch, both, rows);
    if (status == TS_OK) status = put_first(device, *weight, more, some, rows);
  }
  return status;
}

// Rounds rows of activations into scratch memory.
int32_t start_quantize(ts_context& device, const ts_weight& w, const Rounded& rounded, uint64_t scratch, const ProductRows& rows, LinearArgs& args) {
  const uint64_t pairs = scratch + static_cast<uint64_t>(rounded.q_bytes);
  QuantizeArgs quantize = {};
  quantize.x = rows.x;
  quantize.q = reinterpret_cast<int8_t*>(scratch);
  quantize.scales = reinterpret_cast<float*>(pairs);
  quantize.corrections = reinterpret_cast<int32_t*>(pairs + static_cast<uint64_t>(rounded.pair_bytes));
  quantize.x_stride = rows.x_stride;
  quantize.columns = w.columns;
  quantize.padded = rounded.padded;
  quantize.group = w.group;
  quantize.rotated = w.rotated;
  quantize.groups = rounded.groups;
  quantize.parts = divide_up(rounded.groups, groups_at_once(w.group) * (kQuantizeThreads / kWarp));
  args.q = quantize.q;
  args.x_scales = quantize.scales;
  args.corrections = quantize.corrections;
  return start(device, kKernel_quantize, rows.count * quantize.parts, kQuantizeThreads, &quantize);
}

}  // namespace

KernelNumber product_kernel(int32_t weight_kind, bool bank, int64_t rows) {
  if (!is_integer_kind(weight_kind)) return kKernel_linear_float;
  if (!bank && rows > most_few(weight_kind)) return tiles_kernel(weight_kind, rows);
  if (is_stored_kind(weight_kind)) return stored_kernel(weight_kind);
  return bank ? kKernel_linear_one : kKernel_linear_few;
}

int64_t product_scratch(const ts_weight& weight, int64_t rows) {
  const Rounded rounded(weight, rows);
  const int64_t bytes = rounded.q_bytes + 2 * rounded.pair_bytes, of_tiles = is_integer_kind(weight.kind) && weight.experts == 0 ? tiles_scratch(weight, rows) : 0;
  return bytes < of_tiles ? of_tiles : bytes;
}

int32_t start_product(ts_context& device, const ts_weight& w, uint64_t scratch, int64_t scratch_rows, const ProductRows& rows) {
  const Rounded rounded(w, scratch_rows);
  LinearArgs args = arguments_of(w, rounded, rows);
  if (!is_integer_kind(w.kind)) return start_float(device, args);
  if (reinterpret_cast<uint64_t>(w.data) % 16 != 0) return TS_BAD_POINTER;  // kernels load 16 bytes at once
  const KernelNumber kernel = kernel_for(device, w, rows.matrices != nullptr, rows.count);
  if (strip_shape(kernel, args.groups).strip == 0) return start_tiles(device, w, scratch, rows);
  if (rounds_itself(kernel)) return start_strips(device, kernel, rows.count, args);
  const int32_t status = start_quantize(device, w, rounded, scratch, rows, args);
  return status == TS_OK ? start_strips(device, kernel, 1, args) : status;
}

int32_t product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight, bool add, const ts_indices& positions) {
  int32_t status = check_weight(weight);
  if (status != TS_OK) return status;
  if (out.rows != x.rows || width_of(x) != weight->columns || width_of(out) != weight->rows || weight->experts != 0) return TS_BAD_SHAPE;
  if (!has_positions(positions, x.rows)) return TS_BAD_SHAPE;
  const int64_t bytes = product_scratch(*weight, kRowsAtOnce);
  const uint64_t scratch = scratch_of(device, bytes + more_scratch(*weight, positions, x.rows), &status);
  const uint64_t more = scratch + static_cast<uint64_t>(bytes);
  FirstRows some;
  for (int64_t first = 0, count = 0; first < x.rows && status == TS_OK; first += count) {
    count = take_rows(some, *weight, positions, first, x.rows - first < kRowsAtOnce ? x.rows - first : kRowsAtOnce);
    const ProductRows rows = {x.data + first * x.stride, x.stride, count, out.data + first * out.stride, out.stride, add, nullptr};
    status = start_first(device, *weight, more, some, rows);
    if (status == TS_OK && some.count < count) status = start_product(device, *weight, scratch, kRowsAtOnce, rows);
    if (status == TS_OK) status = put_first(device, *weight, more, some, rows);
  }
  return status;
}

int32_t launch(ts_context& device, const ts_linear_args& a) { return product(device, a.out, a.x, a.weight, false, a.positions); }

int32_t launch(ts_context& device, const ts_linear_add_args& a) { return product(device, a.out, a.x, a.weight, true, a.positions); }

int32_t launch(ts_context& device, const ts_linear_silu_args& a) { return gated_product(device, a.out, a.x, a.weight, a.positions); }

int32_t launch(ts_context& device, const ts_feed_forward_args& a) {
  if (a.gate_up == nullptr || a.down == nullptr || a.middle.rows != a.x.rows || width_of(a.middle) != a.down->columns) return TS_BAD_SHAPE;
  const int32_t status = gated_product(device, a.middle, a.x, a.gate_up, a.positions);
  return status == TS_OK ? product(device, a.out, a.middle, a.down, true, a.positions) : status;
}

// Each head's vectors are multiplied by that head's matrix, like the rows of any product.
int32_t launch(ts_context& device, const ts_head_linear_args& a) {
  int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  const int64_t heads = a.weight->experts;
  if (heads < 1 || a.x.heads != heads || a.out.heads != heads || a.x.rows != a.out.rows) return TS_BAD_SHAPE;
  if (a.x.dim != a.weight->columns || a.out.dim != a.weight->rows) return TS_BAD_SHAPE;
  for (int64_t head = 0; head < heads && status == TS_OK; ++head) {
    const ts_weight weight = matrix_of(*a.weight, head);
    const ts_value x = {a.x.data + head * a.x.dim, a.x.stride, a.x.rows, 1, a.x.dim};
    const ts_value out = {a.out.data + head * a.out.dim, a.out.stride, a.out.rows, 1, a.out.dim};
    status = product(device, out, x, &weight, false, {});
  }
  return status;
}

}  // namespace cuda
}  // namespace twostroke
