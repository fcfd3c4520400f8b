// Checks of shapes that ops share wherever they run. Each returns TS_OK, or the status of what is wrong.
#pragma once
#include "twostroke/ops.h"
#include "twostroke/products/packed.h"

namespace twostroke {

constexpr int64_t kScoreKinds = 4;  // the kinds of scores of route
constexpr int64_t kRankStep = 8;  // banks of low_rank are padded to multiples of this
constexpr int64_t kMostBest = 64;  // the most logits of a row that best_losses takes
constexpr int64_t kMostNumbered = 1 << 24;  // float32 has every whole number up to this one
constexpr int64_t kMostMixedStreams = 8;  // the most streams of stream_shares

inline bool in_range(const ts_indices& indices, int64_t end) {
  for (int64_t i = 0; i < indices.count; ++i)
    if (indices.data[i] < 0 || indices.data[i] >= end) return false;
  return true;
}

// Also checks the rows' tokens.
inline int32_t check_shapes(const ts_embed_args& a) {
  const int32_t status = check_weight(a.table);
  if (status != TS_OK) return status;
  if (a.out.rows != a.token_ids.count || width_of(a.out) != a.table->columns || a.table->experts != 0) return TS_BAD_SHAPE;
  return in_range(a.token_ids, a.table->rows) ? TS_OK : TS_BAD_INDEX;
}

inline int32_t check_shapes(const ts_gather_rows_args& a) {
  if (a.out.rows != a.rows.count || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  return in_range(a.rows, a.x.rows) ? TS_OK : TS_BAD_INDEX;
}

// Also checks the rows' positions.
inline int32_t check_shapes(const ts_rope_args& a) {
  if (a.positions.count != a.out.rows || a.table.half < 0 || 2 * a.table.half > a.out.dim) return TS_BAD_SHAPE;
  if (a.table.cos_table == nullptr || a.table.sin_table == nullptr) return TS_BAD_POINTER;
  return in_range(a.positions, a.table.positions) ? TS_OK : TS_BAD_INDEX;
}

inline int32_t check_shapes(const ts_gate_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  return a.out.rows != a.x.rows || 2 * width_of(a.out) != width_of(a.x) ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_multiply_args& a) {
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || a.out.rows != a.gate.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  return width_of(a.gate) < 1 || width_of(a.x) % width_of(a.gate) != 0 ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_mix_streams_args& a) {
  if (!same_shape(a.out, a.base) || a.x.rows != a.out.rows || a.x.dim != a.out.dim || a.weights.rows != a.out.rows) return TS_BAD_SHAPE;
  return width_of(a.weights) != a.out.heads * a.x.heads ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_layer_norm_args& a) {
  const int64_t width = width_of(a.x);
  if (width < 1 || a.out.rows != a.x.rows || width_of(a.out) != width || a.weight.length != width) return TS_BAD_SHAPE;
  return a.bias.data != nullptr && a.bias.length != width ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_match_rms_args& a) {
  return a.out.rows != a.like.rows || width_of(a.out) != width_of(a.like) || width_of(a.out) < 1 ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_round_rows_args& a) {
  return a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x) ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_replace_rows_args& a) {
  if (a.out.rows != a.x.rows || a.out.rows != a.given.rows || a.out.rows != a.marks.count) return TS_BAD_SHAPE;
  return width_of(a.out) != width_of(a.x) || width_of(a.out) != width_of(a.given) ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_join_rows_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.rows.count || width < 1 || width_of(a.out) < width || width_of(a.out) % width != 0) return TS_BAD_SHAPE;
  return in_range(a.rows, a.x.rows / (width_of(a.out) / width)) ? TS_OK : TS_BAD_INDEX;
}

inline int32_t check_shapes(const ts_route_args& a) {
  const int64_t experts = width_of(a.logits), width = width_of(a.out);
  if (a.scores < 0 || a.scores >= kScoreKinds) return TS_BAD_FORMAT;
  if (a.out.rows != a.logits.rows || width % 2 != 0 || width < 2 || experts < 1 || experts > kMostExperts) return TS_BAD_SHAPE;
  if (a.groups < 1 || experts % a.groups != 0 || a.kept < 1 || a.kept > a.groups) return TS_BAD_SHAPE;
  const int64_t inside = experts / a.groups;
  if (a.best < 1 || a.best > 2 || a.best > inside || width / 2 > a.kept * inside) return TS_BAD_SHAPE;
  if (a.bias.data != nullptr && a.bias.length != experts) return TS_BAD_SHAPE;
  if (a.shares.data != nullptr && a.shares.length != experts) return TS_BAD_SHAPE;
  return TS_OK;
}

// Also checks the rows' tokens. It does not check the table's numbers, which may lie on a device.
inline int32_t check_shapes(const ts_route_by_token_args& a) {
  const int64_t experts = width_of(a.logits), width = width_of(a.out), count = width / 2;
  if (a.scores < 0 || a.scores >= kScoreKinds) return TS_BAD_FORMAT;
  if (a.out.rows != a.logits.rows || a.token_ids.count != a.out.rows || width % 2 != 0 || width < 2) return TS_BAD_SHAPE;
  if (experts < count || experts > kMostExperts || a.table.data == nullptr || a.table.length % count != 0) return TS_BAD_SHAPE;
  for (int64_t t = 0; t < a.token_ids.count; ++t)
    if (a.token_ids.data[t] < 0 || a.token_ids.data[t] >= a.table.length / count) return TS_BAD_INDEX;
  return TS_OK;
}

inline int32_t check_shapes(const ts_stream_shares_args& a) {
  const int64_t n = a.streams, width = width_of(a.x);
  if (n < 2 || n > kMostMixedStreams || a.rounds < 1 || (width != n && width != (2 + n) * n)) return TS_BAD_SHAPE;
  if (a.out.rows != a.x.rows || width_of(a.out) != width || a.base.length != width) return TS_BAD_SHAPE;
  return a.factor.length != (width == n ? 1 : 3) ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_weigh_streams_args& a) {
  if (a.x.rows != a.out.rows || a.x.dim != a.out.dim || a.weights.rows != a.out.rows) return TS_BAD_SHAPE;
  return a.x.heads < 1 || width_of(a.weights) != a.out.heads * a.x.heads ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_sparse_mixer_args& a) {
  const int64_t experts = width_of(a.logits), width = width_of(a.out);
  if (a.out.rows != a.logits.rows || width % 2 != 0 || width < 2 || width / 2 > experts || experts > kMostExperts) return TS_BAD_SHAPE;
  return a.jitter >= 0 ? TS_OK : TS_BAD_VALUE;
}

// There is one vector of weights for all heads, or one for each; the same holds for biases.
inline int32_t check_shapes(const ts_head_layer_norm_args& a) {
  const int64_t width = width_of(a.out);
  if (width < 1 || a.weight.data == nullptr || (a.weight.length != a.out.dim && a.weight.length != width)) return TS_BAD_SHAPE;
  return a.bias.data != nullptr && a.bias.length != a.weight.length ? TS_BAD_SHAPE : TS_OK;
}

inline bool has_gate(const ts_experts_args& a) { return a.gate_up->rows == 2 * a.down->columns; }

// Checks the matrices, the inputs and the output. Each backend checks the other operands.
inline int32_t check_shapes(const ts_experts_args& a) {
  int32_t status = check_weight(a.gate_up);
  if (status == TS_OK) status = check_weight(a.down);
  if (status != TS_OK) return status;
  const int64_t width = width_of(a.x);
  if (a.gate_up->experts < 1 || a.gate_up->experts > kMostExperts || a.down->experts != a.gate_up->experts) return TS_BAD_SHAPE;
  if (a.gate_up->columns != width || (a.gate_up->rows != a.down->columns && !has_gate(a)) || a.down->rows > width) return TS_BAD_SHAPE;
  if (width_of(a.out) != a.down->rows || a.out.rows != a.x.rows || a.routes.rows != a.x.rows) return TS_BAD_SHAPE;
  if (a.idle < 0 || (a.idle > 0 && a.weigh_inputs != 0)) return TS_BAD_VALUE;
  return width_of(a.routes) % 2 != 0 ? TS_BAD_SHAPE : TS_OK;
}

// Does not check the numbers of matrices, which may lie on a device.
inline int32_t check_shapes(const ts_chosen_linear_args& a) {
  const int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  const int64_t choices = a.out.heads, matrices = a.weight->experts;
  if (matrices < 1 || matrices > kMostExperts || choices < 1 || width_of(a.routes) != 2 * choices) return TS_BAD_SHAPE;
  if (a.x.rows != a.out.rows || a.routes.rows != a.out.rows || (a.x.heads != 1 && a.x.heads != choices)) return TS_BAD_SHAPE;
  return a.x.dim != a.weight->columns || a.out.dim != a.weight->rows ? TS_BAD_SHAPE : TS_OK;
}

// Does not check the numbers of logits, which may lie on a device.
inline int32_t check_shapes(const ts_add_losses_args& a) {
  const int64_t width = width_of(a.losses);
  if (a.count < 1 || a.out.rows != a.losses.rows) return TS_BAD_SHAPE;
  return width < 2 * a.count || width % (2 * a.count) != 0 ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_best_losses_args& a) {
  const int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  const int64_t logits = width_of(a.logits), width = width_of(a.out), count = width / 2;
  if (a.out.rows != a.logits.rows || a.out.rows != a.x.rows || width_of(a.x) != a.weight->columns || a.weight->experts != 0) return TS_BAD_SHAPE;
  if (width % 2 != 0 || count < 1 || count > kMostBest || count > logits || logits > kMostNumbered) return TS_BAD_SHAPE;
  return a.first < 0 || a.first + a.weight->rows > logits ? TS_BAD_INDEX : TS_OK;
}

inline int32_t check_shapes(const ts_idle_share_args& a) {
  if (a.out.rows != a.routes.rows || width_of(a.out) != 1 || width_of(a.routes) % 2 != 0) return TS_BAD_SHAPE;
  return a.experts < 1 ? TS_BAD_VALUE : TS_OK;
}

// Whether a bank's elements are int8 with a scale for each column of each matrix. No other op takes such a weight.
inline bool has_column_scales(const ts_weight& w) { return w.kind == TS_W_INT8 && w.group == 0; }

inline int32_t check_bank(const ts_weight* w, int64_t adapters) {
  if (w == nullptr || w->data == nullptr) return TS_BAD_POINTER;
  if (has_column_scales(*w)) {
    if (w->scales == nullptr) return TS_BAD_POINTER;
    if (w->rows <= 0 || w->columns <= 0) return TS_BAD_SHAPE;
  } else {
    const int32_t status = check_weight(w);
    if (status != TS_OK) return status;
    if (w->kind != TS_W_F32 && w->kind != TS_W_BF16) return TS_BAD_FORMAT;
  }
  return w->experts < 1 || w->experts != adapters || w->columns % kRankStep != 0 ? TS_BAD_SHAPE : TS_OK;
}

// Also checks the rows' adapters. It does not check the numbers of ranks, which may lie on a device.
inline int32_t check_shapes(const ts_low_rank_args& a) {
  int32_t status = check_bank(a.down, a.ranks.length);
  if (status == TS_OK) status = check_bank(a.up, a.ranks.length);
  if (status != TS_OK) return status;
  const int64_t tokens = a.out.rows, ranks = a.down->columns;
  if (a.up->columns != ranks || width_of(a.middle) != ranks || a.down->rows != width_of(a.x)) return TS_BAD_SHAPE;
  if (a.first < 0 || a.first > width_of(a.out) || a.up->rows > width_of(a.out) - a.first) return TS_BAD_SHAPE;
  if (!same_shape(a.out, a.product) || a.x.rows != tokens || a.middle.rows != tokens || a.adapters.count != tokens) return TS_BAD_SHAPE;
  for (int64_t row = 0; row < tokens; ++row) {
    if (a.adapters.data[row] < -1 || a.adapters.data[row] >= a.ranks.length) return TS_BAD_INDEX;
  }
  return TS_OK;
}

// The number of places in each of the operands that are added to scores.
inline int64_t places_of(const ts_placed_attention_args& a) {
  return a.by_row.data != nullptr ? a.by_row.dim : a.by_key.data != nullptr ? a.by_key.dim : a.q.heads > 0 ? a.table.length / a.q.heads : 0;
}

// Also checks the sequences' rows. It does not check the places of distances, which may lie on a device.
inline int32_t check_shapes(const ts_placed_attention_args& a) {
  if (a.layer == nullptr || a.layer->latent != 0 || a.q.heads < 1 || a.out.rows != a.q.rows || a.out.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim || a.ahead < 0 || a.ahead > INT32_MAX) return TS_BAD_SHAPE;
  const ts_sequences& s = a.batch;
  if (s.row_starts == nullptr || s.context_tokens == nullptr || s.page_table == nullptr) return TS_BAD_POINTER;
  if (s.count > 0 && s.row_starts[s.count] != a.q.rows) return TS_BAD_INDEX;
  const int64_t count = places_of(a);
  if (a.places.data == nullptr || a.places.length % 2 == 0 || count < 1) return TS_BAD_SHAPE;
  if (a.table.data != nullptr && a.table.length != a.q.heads * count) return TS_BAD_SHAPE;
  const ts_value both[] = {a.by_row, a.by_key};
  for (const ts_value& each : both)
    if (each.data != nullptr && (each.rows != a.q.rows || each.heads != a.q.heads || each.dim != count)) return TS_BAD_SHAPE;
  if (a.by_key.data != nullptr)  // a key's row is a row of the step
    for (int64_t i = 0; i < s.count; ++i)
      if (s.context_tokens[i] != s.row_starts[i + 1] - s.row_starts[i]) return TS_BAD_SHAPE;
  return TS_OK;
}

inline int32_t check_shapes(const ts_place_scores_args& a) {
  if (a.out.rows != a.x.rows || a.out.heads != a.x.heads || a.x.heads < 1) return TS_BAD_SHAPE;
  return a.table.data == nullptr || a.table.length != a.x.heads * a.x.dim * a.out.dim ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace twostroke
