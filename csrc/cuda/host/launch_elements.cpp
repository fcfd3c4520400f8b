// The launchers of ops that compute each element by itself, of norms, of rope, and of rows of a table.
#include "twostroke/checks.h"
#include "twostroke/cuda/host/launch.h"
#include "twostroke/cuda/products/packed.h"
#include "twostroke/pointwise.h"

namespace twostroke {
namespace cuda {
namespace {

int32_t start_elements(ts_context& device, KernelNumber kernel, const ts_value& out, ElementArgs args) {
  args.out = out.data;
  args.out_stride = out.stride;
  args.width = width_of(out);
  return start_fours(device, kernel, out.rows, args.width, args);
}

ElementArgs from(const ts_value& x) {
  ElementArgs args = {};
  args.x = x.data;
  args.x_stride = x.stride;
  return args;
}

int32_t start_norm(ts_context& device, KernelNumber kernel, const ts_value& out, const ts_value& x, int64_t vectors, int64_t columns,
                   const ts_vector& weight, const ts_vector& bias, double eps) {
  if (weight.data == nullptr) return TS_BAD_POINTER;
  if (columns < 1 || vectors < 1) return TS_BAD_SHAPE;
  NormArgs args = {out.data, x.data, weight.data, bias.data, out.stride, x.stride, out.rows, vectors, columns, static_cast<float>(eps)};
  if (out.rows * vectors > INT32_MAX || columns > INT32_MAX) return TS_BAD_SHAPE;
  if (kernel == kKernel_rms_norm && columns <= kNarrow)
    return start(device, kKernel_head_norm, divide_up(out.rows * vectors, kThreads / kNarrowThreads), kThreads, &args);
  int32_t status = TS_OK;
  for (int64_t i = 0; i < vectors && status == TS_OK; ++i) {
    status = start(device, kernel, out.rows, row_threads(columns), &args);
    args.x += columns;
    args.out += columns;
  }
  return status;
}

bool in_range(const ts_indices& indices, int64_t end) {
  for (int64_t i = 0; i < indices.count; ++i)
    if (indices.data[i] < 0 || indices.data[i] >= end) return false;
  return true;
}

}  // namespace

int32_t launch(ts_context& device, const ts_gate_args& a) {
  if (a.activation < 0 || a.activation >= kActivationKinds) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || 2 * width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  ElementArgs args = from(a.x);
  args.activation = a.activation;
  args.limit = static_cast<float>(a.limit);
  args.shift = static_cast<float>(a.shift);
  args.hold_values = a.hold_values != 0 && a.limit > 0.0;
  return start_elements(device, kKernel_gate, a.out, args);
}

int32_t launch(ts_context& device, const ts_multiply_args& a) {
  if (a.activation < 0 || a.activation >= kActivationKinds) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || a.out.rows != a.gate.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  if (width_of(a.gate) < 1 || width_of(a.x) % width_of(a.gate) != 0) return TS_BAD_SHAPE;
  ElementArgs args = from(a.x);
  args.activation = a.activation;
  args.gate = a.gate.data;
  args.gate_stride = a.gate.stride;
  args.shared = width_of(a.x) / width_of(a.gate);
  return start_elements(device, kKernel_multiply, a.out, args);
}

int32_t launch(ts_context& device, const ts_pointwise_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const ts_value& x = a.x.data == nullptr ? a.out : a.x;
  const PointwiseArgs args = {a.out.data, x.data, a.y.data,        a.numbers.data,     a.out.stride, x.stride, a.y.stride, width_of(a.out), 0, a.program,
                              a.numbers.length, static_cast<float>(a.a), static_cast<float>(a.b)};
  return start_fours(device, kKernel_pointwise, a.out.rows, args.width, args);
}

int32_t launch(ts_context& device, const ts_mix_streams_args& a) {
  if (!same_shape(a.out, a.base) || a.x.rows != a.out.rows || a.x.dim != a.out.dim || a.weights.rows != a.out.rows) return TS_BAD_SHAPE;
  if (width_of(a.weights) != a.out.heads * a.x.heads) return TS_BAD_SHAPE;
  const MixArgs args = {a.out.data,  a.base.data,      a.x.data,    a.weights.data, a.out.stride, a.base.stride,           a.x.stride,
                        a.weights.stride, a.out.heads, a.x.heads,   a.out.dim,      0, static_cast<float>(a.shift)};
  return start_fours(device, kKernel_mix_streams, a.out.rows, width_of(a.out), args);
}

int32_t launch(ts_context& device, const ts_weigh_streams_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const MixArgs args = {a.out.data,       nullptr,     a.x.data,  a.weights.data, a.out.stride, 0, a.x.stride,
                        a.weights.stride, a.out.heads, a.x.heads, a.out.dim,      0, 0.0f};
  return start_fours(device, kKernel_weigh_streams, a.out.rows, width_of(a.out), args);
}

int32_t launch(ts_context& device, const ts_stream_shares_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const SharesArgs args = {a.out.data, a.x.data, a.base.data, a.factor.data, a.out.stride, a.x.stride, a.streams, width_of(a.x), a.rounds,
                           static_cast<float>(a.eps)};
  return start(device, kKernel_stream_shares, a.out.rows, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_gaussian_cut_args& a) {
  if (width_of(a.out) < 1) return TS_BAD_SHAPE;
  const NormArgs args = {a.out.data, nullptr, nullptr, nullptr, a.out.stride, 0, a.out.rows, 1, width_of(a.out), static_cast<float>(a.factor)};
  return start(device, kKernel_gaussian_cut, a.out.rows, row_threads(args.columns), &args);
}

int32_t launch(ts_context& device, const ts_rotate_heads_args& a) {
  if (!same_shape(a.out, a.x) || a.out.dim > kMostRotatedDims) return TS_BAD_SHAPE;
  const NormArgs args = {a.out.data, a.x.data,  nullptr,     nullptr, a.out.stride, a.x.stride, a.out.rows, a.out.heads, a.out.dim,
                         0.0f,       a.inverse};
  return start(device, kKernel_rotate_heads, a.out.rows * a.out.heads, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_round_rows_args& a) {
  if (a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  const NormArgs args = {a.out.data, a.x.data, nullptr, nullptr, a.out.stride, a.x.stride, a.out.rows, 1, width_of(a.out), 0.0f};
  return start(device, kKernel_round_rows, a.out.rows, kThreads, &args);
}

int32_t launch(ts_context& device, const ts_match_rms_args& a) {
  if (a.out.rows != a.like.rows || width_of(a.out) != width_of(a.like) || width_of(a.out) < 1) return TS_BAD_SHAPE;
  const NormArgs args = {a.out.data, a.like.data, nullptr, nullptr, a.out.stride, a.like.stride, a.out.rows, 1, width_of(a.out), static_cast<float>(a.least)};
  return start(device, kKernel_match_rms, a.out.rows, row_threads(args.columns), &args);
}

int32_t launch(ts_context& device, const ts_gather_rows_args& a) {
  if (a.out.rows != a.rows.count || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  const int32_t* rows = mirrored(device, a.rows.data, a.rows.count);
  if (rows == nullptr) return TS_BAD_POINTER;
  if (!in_range(a.rows, a.x.rows)) return TS_BAD_INDEX;
  const GatherArgs args = {a.out.data, a.x.data, rows, a.out.stride, a.x.stride, width_of(a.out), 0};
  return start_fours(device, kKernel_gather_rows, a.out.rows, args.width, args);
}

int32_t launch(ts_context& device, const ts_embed_args& a) {
  const int32_t status = check_weight(a.table);
  if (status != TS_OK) return status;
  const ts_weight& w = *a.table;
  if (a.out.rows != a.token_ids.count || width_of(a.out) != w.columns || w.experts != 0) return TS_BAD_SHAPE;
  const int32_t* ids = mirrored(device, a.token_ids.data, a.token_ids.count);
  if (ids == nullptr) return TS_BAD_POINTER;
  if (!in_range(a.token_ids, w.rows)) return TS_BAD_INDEX;
  const int64_t padded = padded_columns(w.kind, w.columns);
  const EmbedArgs args = {a.out.data,   static_cast<const uint8_t*>(w.data), w.scales, ids,    a.out.stride,         w.columns, padded,
                          panel_bytes(w.kind, padded), 0,  w.kind,   w.group, stored_layout(w.kind), w.rotated};
  return start_fours(device, kKernel_embed, a.out.rows, w.columns, args);
}

int32_t launch(ts_context& device, const ts_rms_norm_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.x.rows || width_of(a.out) != width || a.weight.length != width) return TS_BAD_SHAPE;
  return start_norm(device, kKernel_rms_norm, a.out, a.x, 1, width, a.weight, {}, a.eps);
}

int32_t launch(ts_context& device, const ts_head_norm_args& a) {
  if (a.weight.length != a.out.dim) return TS_BAD_SHAPE;
  return start_norm(device, kKernel_rms_norm, a.out, a.out, a.out.heads, a.out.dim, a.weight, {}, a.eps);
}

int32_t launch(ts_context& device, const ts_head_layer_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const ts_value& x = a.out;
  if (x.rows * x.heads > INT32_MAX || x.dim > INT32_MAX) return TS_BAD_SHAPE;
  const NormArgs args = {x.data, x.data, a.weight.data, a.bias.data, x.stride, x.stride, x.rows, x.heads, x.dim, static_cast<float>(a.eps),
                         a.weight.length == x.dim ? 0 : x.dim};
  return start(device, kKernel_head_layer_norm, x.rows * x.heads, row_threads(x.dim), &args);
}

int32_t launch(ts_context& device, const ts_layer_norm_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.x.rows || width_of(a.out) != width || a.weight.length != width) return TS_BAD_SHAPE;
  if (a.bias.data != nullptr && a.bias.length != width) return TS_BAD_SHAPE;
  return start_norm(device, kKernel_layer_norm, a.out, a.x, 1, width, a.weight, a.bias, a.eps);
}

int32_t launch(ts_context& device, const ts_rope_args& a) {
  if (a.positions.count != a.out.rows || a.table.half < 0 || 2 * a.table.half > a.out.dim) return TS_BAD_SHAPE;
  if (a.table.cos_table == nullptr || a.table.sin_table == nullptr) return TS_BAD_POINTER;
  const int32_t* positions = mirrored(device, a.positions.data, a.positions.count);
  if (positions == nullptr) return TS_BAD_POINTER;
  if (!in_range(a.positions, a.table.positions)) return TS_BAD_INDEX;
  const RopeArgs args = {a.out.data,   a.table.cos_table, a.table.sin_table, positions,       a.out.stride,
                         a.out.heads, a.out.dim,         a.table.half,      0};
  return start_fours(device, kKernel_rope, a.out.rows, args.heads * args.half, args);
}

}  // namespace cuda
}  // namespace twostroke
