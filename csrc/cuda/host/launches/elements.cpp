// The launchers of ops that compute each element by itself, of norms, of rope, of rows of a table, and of rows of images.
#include "twostroke/cuda/host/launch.h"
#include "twostroke/cuda/products/packed.h"

namespace twostroke {
namespace cuda {
namespace {

// Norms each of the `vectors` vectors of a row, which lie one after another.
int32_t start_norm(ts_context& device, const ts_value& out, const ts_value& x, int64_t vectors, int64_t columns, const ts_vector& weight, double eps) {
  if (weight.data == nullptr) return TS_BAD_POINTER;
  if (columns < 1 || vectors < 1) return TS_BAD_SHAPE;
  NormArgs args = {out.data, x.data, weight.data, out.stride, x.stride, out.rows, vectors, columns, static_cast<float>(eps)};
  if (out.rows * vectors > INT32_MAX || columns > INT32_MAX) return TS_BAD_SHAPE;
  if (columns <= kNarrow) return start(device, kKernel_head_norm, divide_up(out.rows * vectors, kThreads / kNarrowThreads), kThreads, &args);
  int32_t status = TS_OK;
  for (int64_t i = 0; i < vectors && status == TS_OK; ++i) {
    status = start(device, kKernel_rms_norm, out.rows, row_threads(columns), &args);
    args.x += columns;
    args.out += columns;
  }
  return status;
}

}  // namespace

int32_t launch(ts_context& device, const ts_gate_args& a) { return start_fours(device, kKernel_gate, a); }
int32_t launch(ts_context& device, const ts_multiply_args& a) { return start_fours(device, kKernel_multiply, a); }
int32_t launch(ts_context& device, const ts_mix_streams_args& a) { return start_fours(device, kKernel_mix_streams, a); }
int32_t launch(ts_context& device, const ts_weigh_streams_args& a) { return start_fours(device, kKernel_weigh_streams, a); }
int32_t launch(ts_context& device, const ts_gather_rows_args& a) {
  return start_fours(device, kKernel_gather_rows, a, &ts_gather_rows_args::rows);
}
int32_t launch(ts_context& device, const ts_join_rows_args& a) { return start_fours(device, kKernel_join_rows, a, &ts_join_rows_args::rows); }
int32_t launch(ts_context& device, const ts_replace_rows_args& a) {
  return start_fours(device, kKernel_replace_rows, a, &ts_replace_rows_args::marks);
}

int32_t launch(ts_context& device, const ts_pointwise_args& a) {
  ts_pointwise_args args = a;
  if (a.x.data == nullptr) args.x = a.out;
  return start_fours(device, kKernel_pointwise, args);
}

int32_t launch(ts_context& device, const ts_take_columns_args& a) {
  if (a.out.rows != a.x.rows || a.order.length != width_of(a.out)) return TS_BAD_SHAPE;
  return start_fours(device, kKernel_take_columns, a.out.rows, width_of(a.out), &a);
}

int32_t launch(ts_context& device, const ts_stream_shares_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start(device, kKernel_stream_shares, a.out.rows, kGroupThreads, &a) : status;
}

int32_t launch(ts_context& device, const ts_gaussian_cut_args& a) {
  return width_of(a.out) < 1 ? TS_BAD_SHAPE : start(device, kKernel_gaussian_cut, a.out.rows, row_threads(width_of(a.out)), &a);
}

int32_t launch(ts_context& device, const ts_rotate_heads_args& a) {
  if (!same_shape(a.out, a.x) || a.out.dim > kMostRotatedDims) return TS_BAD_SHAPE;
  return start(device, kKernel_rotate_heads, a.out.rows * a.out.heads, kThreads, &a);
}

int32_t launch(ts_context& device, const ts_round_rows_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start(device, kKernel_round_rows, a.out.rows, kThreads, &a) : status;
}

int32_t launch(ts_context& device, const ts_match_rms_args& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start(device, kKernel_match_rms, a.out.rows, row_threads(width_of(a.out)), &a) : status;
}

int32_t launch(ts_context& device, const ts_embed_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const ts_weight& w = *a.table;
  const int32_t* ids = mirrored(device, a.token_ids.data, a.token_ids.count);
  if (ids == nullptr) return TS_BAD_POINTER;
  const int64_t padded = padded_columns(w.kind, w.columns);
  const EmbedArgs args = {a.out.data,   static_cast<const uint8_t*>(w.data), w.scales, ids,    a.out.stride,         w.columns, padded,
                          panel_bytes(w.kind, padded), w.kind,   w.group, stored_layout(w.kind), w.rotated};
  return start_fours(device, kKernel_embed, a.out.rows, w.columns, &args);
}

int32_t launch(ts_context& device, const ts_rms_norm_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.x.rows || width_of(a.out) != width || a.weight.length != width) return TS_BAD_SHAPE;
  return start_norm(device, a.out, a.x, 1, width, a.weight, a.eps);
}

int32_t launch(ts_context& device, const ts_head_norm_args& a) {
  if (a.weight.length != a.out.dim) return TS_BAD_SHAPE;
  return start_norm(device, a.out, a.out, a.out.heads, a.out.dim, a.weight, a.eps);
}

int32_t launch(ts_context& device, const ts_head_layer_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.out.rows * a.out.heads > INT32_MAX || a.out.dim > INT32_MAX) return TS_BAD_SHAPE;
  return start(device, kKernel_head_layer_norm, a.out.rows * a.out.heads, row_threads(a.out.dim), &a);
}

int32_t launch(ts_context& device, const ts_layer_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.weight.data == nullptr) return TS_BAD_POINTER;
  if (a.weight.length > INT32_MAX) return TS_BAD_SHAPE;
  return start(device, kKernel_layer_norm, a.out.rows, row_threads(a.weight.length), &a);
}

int32_t launch(ts_context& device, const ts_rope_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  ts_rope_args args = a;
  if (!mirror(device, args.positions)) return TS_BAD_POINTER;
  return start_fours(device, kKernel_rope, a.out.rows, a.out.heads * a.table.half, &args);
}

}  // namespace cuda
}  // namespace twostroke
