// The ops as Python calls them, with one line for each op. Its operands are in the order of the fields of its class in src/twostroke/ops/.
// Every operand is a whole number of 64-bit words, so a call is words too: its op, then its operands. ts_op_signature returns these lines,
// and the Python side compares them with its classes when it loads the library.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

// Float rows. Element (row, head, i) lies at data[row * stride + head * dim + i]. heads is 1 for plain rows.
typedef struct {
  float* data;
  int64_t stride, rows, heads, dim;
} ts_value;

typedef const ts_weight* ts_weight_at;
typedef const ts_kv_layer* ts_cache;

typedef struct {
  const float* data;  // NULL for an optional vector that is left out; length is then 0
  int64_t length;
} ts_vector;

typedef struct {
  const float *cos_table, *sin_table;  // (positions, half)
  int64_t positions, half;
} ts_rope_table;

typedef struct {
  const int32_t* data;
  int64_t count;
} ts_indices;

// Sequence s has rows [row_starts[s], row_starts[s + 1]). Its last row is at position context_tokens[s] - 1.
typedef struct {
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t count, max_pages;
} ts_sequences;

// The states of sequences. Slot i has `elements` floats from data + i * stride on.
typedef struct {
  float* data;
  int64_t stride, slots, elements;
} ts_state;

typedef double ts_number;
typedef int64_t ts_integer;
#define ts_weight_operand ts_weight_at
#define ts_value_operand ts_value
#define ts_vector_operand ts_vector
#define ts_cache_operand ts_cache
#define ts_state_operand ts_state
#define ts_rope_table_operand ts_rope_table
#define ts_indices_operand ts_indices
#define ts_sequences_operand ts_sequences
#define ts_number_operand ts_number
#define ts_integer_operand ts_integer

#define TS_OPS(OP)                                                                                                       \
  OP(add_losses, F(value, out) F(value, losses) F(integer, count))                                                        \
  OP(attention, F(value, out) F(value, q) F(cache, layer) F(sequences, batch) F(number, scale) F(integer, window) F(number, soft_cap) F(vector, sinks) F(vector, slopes) F(integer, ahead)) \
  OP(best_losses, F(value, out) F(value, logits) F(value, x) F(weight, weight) F(integer, first))                          \
  OP(chosen_latent_attention, F(value, out) F(value, q) F(value, q_turned) F(value, chosen) F(cache, layer) F(sequences, batch) F(number, scale) F(vector, sinks)) \
  OP(chosen_linear, F(value, out) F(value, x) F(value, routes) F(weight, weight) F(value, rows) F(value, made))          \
  OP(compress, F(value, out) F(value, x) F(vector, bias) F(state, state) F(indices, slots) F(sequences, batch) F(integer, rate)) \
  OP(delta_rule, F(value, out) F(value, q) F(value, k) F(value, v) F(value, a) F(value, b) F(vector, decay) F(vector, dt_bias) F(state, state) F(indices, slots) F(sequences, batch) F(number, strength) F(number, lowest)) \
  OP(embed, F(value, out) F(weight, table) F(indices, token_ids))                                                        \
  OP(entry_attention, F(value, out) F(value, q) F(value, chosen) F(value, before) F(cache, layer) F(sequences, batch) F(vector, sinks) F(number, scale) F(integer, rate) F(integer, window)) \
  OP(entry_select, F(value, out) F(value, q) F(value, weights) F(cache, layer) F(sequences, batch) F(integer, rate)) \
  OP(entry_write, F(cache, layer) F(value, rows) F(indices, slots) F(indices, positions) F(integer, rate)) \
  OP(experts, F(value, out) F(value, x) F(value, routes) F(weight, gate_up) F(weight, down) F(value, rows) F(value, middle) F(value, pairs) F(integer, activation) F(number, limit) F(number, shift) F(integer, weigh_inputs) F(integer, idle) F(integer, hold_values)) \
  OP(feed_forward, F(value, out) F(value, x) F(weight, gate_up) F(weight, down) F(value, middle) F(indices, positions))    \
  OP(gate, F(value, out) F(value, x) F(integer, activation) F(number, limit) F(number, shift) F(integer, hold_values))    \
  OP(gated_norm, F(value, out) F(value, x) F(value, gate) F(vector, weight) F(number, eps) F(integer, groups) F(integer, activation) F(integer, gate_first)) \
  OP(gaussian_cut, F(value, out) F(number, factor))                                                                      \
  OP(gather, F(value, out) F(value, part) F(weight, reader) F(integer, first) F(indices, positions))                     \
  OP(gather_rows, F(value, out) F(value, x) F(indices, rows))                                                            \
  OP(hand_over, F(value, x))                                                                                              \
  OP(head_layer_norm, F(value, out) F(vector, weight) F(vector, bias) F(number, eps))                                    \
  OP(head_linear, F(value, out) F(value, x) F(weight, weight))                                                           \
  OP(head_norm, F(value, out) F(vector, weight) F(number, eps))                                                          \
  OP(idle_share, F(value, out) F(value, routes) F(integer, experts))                                                     \
  OP(index_select, F(value, out) F(value, q) F(value, weights) F(cache, layer) F(sequences, batch))                      \
  OP(join_rows, F(value, out) F(value, x) F(indices, rows))                                                              \
  OP(kv_write, F(cache, layer) F(value, k) F(value, v) F(indices, slots))                                                \
  OP(latent_attention, F(value, out) F(value, q) F(value, q_turned) F(cache, layer) F(sequences, batch) F(number, scale) F(integer, window)) \
  OP(latent_write, F(cache, layer) F(value, rows) F(indices, slots))                                                     \
  OP(layer_norm, F(value, out) F(value, x) F(vector, weight) F(vector, bias) F(number, eps))                             \
  OP(linear, F(value, out) F(value, x) F(weight, weight) F(indices, positions))                                          \
  OP(linear_add, F(value, out) F(value, x) F(weight, weight) F(indices, positions))                                      \
  OP(linear_silu, F(value, out) F(value, x) F(weight, weight) F(indices, positions))                                     \
  OP(match_rms, F(value, out) F(value, like) F(number, least))                                                           \
  OP(mix_streams, F(value, out) F(value, base) F(value, x) F(value, weights) F(number, shift))                           \
  OP(mlstm, F(value, out) F(value, q) F(value, k) F(value, v) F(value, input_gate) F(value, forget_gate) F(state, state) F(indices, slots) F(sequences, batch) F(number, eps)) \
  OP(multiply, F(value, out) F(value, x) F(value, gate) F(integer, activation))                                          \
  OP(low_rank, F(value, out) F(value, product) F(value, x) F(weight, down) F(weight, up) F(vector, ranks) F(indices, adapters) F(value, middle) F(integer, first)) \
  OP(place_scores, F(value, out) F(value, x) F(vector, table)) \
  OP(placed_attention, F(value, out) F(value, q) F(cache, layer) F(sequences, batch) F(number, scale) F(vector, places) F(vector, table) F(value, by_row) F(value, by_key) F(integer, ahead)) \
  OP(pointwise, F(value, out) F(integer, program) F(value, x) F(value, y) F(vector, numbers) F(number, a) F(number, b)) \
  OP(receive, F(value, out))                                                                                              \
  OP(replace_rows, F(value, out) F(value, x) F(value, given) F(indices, marks) F(integer, added))                                        \
  OP(rg_lru, F(value, out) F(value, x) F(value, input_gate) F(value, recurrent_gate) F(vector, rates) F(state, state) F(indices, slots) F(sequences, batch)) \
  OP(rms_norm, F(value, out) F(value, x) F(vector, weight) F(number, eps))                                               \
  OP(rope, F(value, out) F(rope_table, table) F(indices, positions))                                                     \
  OP(rotate_heads, F(value, out) F(value, x) F(integer, inverse)) \
  OP(round_rows, F(value, out) F(value, x)) \
  OP(route, F(value, out) F(value, logits) F(integer, normalised) F(vector, bias) F(integer, scores) F(integer, groups) F(integer, kept) F(integer, best) F(number, least) F(number, added) F(number, factor) F(vector, shares)) \
  OP(route_by_token, F(value, out) F(value, logits) F(indices, token_ids) F(vector, table) F(integer, scores) F(number, added) F(number, factor)) \
  OP(selective_scan, F(value, out) F(value, x) F(value, dt) F(value, b) F(value, c) F(vector, decay) F(vector, skip) F(state, state) F(indices, slots) F(sequences, batch)) \
  OP(short_conv, F(value, out) F(value, x) F(vector, taps) F(vector, bias) F(state, state) F(indices, slots) F(sequences, batch) F(integer, activation)) \
  OP(span_attention, F(value, out) F(value, q) F(cache, layer) F(sequences, batch) F(indices, ends) F(number, scale) F(integer, window) F(number, soft_cap)) \
  OP(sparse_mixer, F(value, out) F(value, logits) F(number, jitter))                                                     \
  OP(ssd_scan, F(value, out) F(value, x) F(value, b) F(value, c) F(value, dt) F(vector, decay) F(vector, skip) F(vector, dt_bias) F(state, state) F(indices, slots) F(sequences, batch) F(number, dt_least) F(number, dt_most)) \
  OP(stream_shares, F(value, out) F(value, x) F(vector, base) F(vector, factor) F(integer, streams) F(integer, rounds) F(number, eps)) \
  OP(take_columns, F(value, out) F(value, x) F(vector, order)) \
  OP(token_shift, F(value, out) F(value, x) F(vector, mix) F(state, state) F(indices, slots) F(sequences, batch)) \
  OP(weigh_streams, F(value, out) F(value, x) F(value, weights)) \
  OP(wkv4, F(value, out) F(value, k) F(value, v) F(vector, first) F(vector, decay) F(state, state) F(indices, slots) F(sequences, batch)) \
  OP(wkv6, F(value, out) F(value, r) F(value, w) F(value, k) F(value, v) F(vector, first) F(vector, weight) F(vector, bias) F(state, state) F(indices, slots) F(sequences, batch) F(number, eps)) \
  OP(wkv7, F(value, out) F(value, r) F(value, w) F(value, k) F(value, v) F(value, a) F(vector, removal) F(vector, growth) F(vector, bonus) F(vector, weight) F(vector, bias) F(state, state) F(indices, slots) F(sequences, batch) F(number, eps))

#define F(kind, name) ts_##kind##_operand name;
#define OP(name, fields) \
  typedef struct {       \
    fields               \
  } ts_##name##_args;
TS_OPS(OP)
#undef OP
#undef F

namespace twostroke {

// The function of each op. It checks shapes and returns a ts_status.
#define OP(name, fields) int32_t run(ts_context* context, const ts_##name##_args& args);
TS_OPS(OP)
#undef OP

constexpr int64_t kActivations = 10;  // activation.h names them
constexpr int64_t kMostExperts = 1024;  // the most experts of one layer for which route and experts have room

inline bool same_shape(const ts_value& a, const ts_value& b) { return a.rows == b.rows && a.heads == b.heads && a.dim == b.dim; }
inline int64_t width_of(const ts_value& value) { return value.heads * value.dim; }

}  // namespace twostroke
