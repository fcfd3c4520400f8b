// Functions that ops share which go through a sequence token by token: they find a sequence's state and its rows.
#pragma once
#include "twostroke/ops.h"

namespace twostroke {

// The rows of one sequence, and its state.
struct Span {
  int64_t first, count;
  float* state;
};

inline Span span_of(const ts_state& state, const ts_indices& slots, const ts_sequences& batch, int64_t sequence) {
  const int64_t first = batch.row_starts[sequence];
  return {first, batch.row_starts[sequence + 1] - first, state.data + slots.data[sequence] * state.stride};
}

// Returns TS_OK where the sequences divide `rows` rows and each has a slot of `elements` floats. The caller must make sure that no two have
// the same slot.
inline int32_t check_states(const ts_state& state, const ts_indices& slots, const ts_sequences& batch, int64_t rows, int64_t elements) {
  if (state.elements != elements || state.stride < elements || slots.count != batch.count) return TS_BAD_SHAPE;
  if (batch.count == 0) return rows == 0 ? TS_OK : TS_BAD_INDEX;
  if (batch.row_starts[0] != 0 || batch.row_starts[batch.count] != rows) return TS_BAD_INDEX;
  for (int64_t s = 0; s < batch.count; ++s) {
    if (batch.row_starts[s + 1] < batch.row_starts[s]) return TS_BAD_INDEX;
    if (slots.data[s] < 0 || slots.data[s] >= state.slots) return TS_BAD_INDEX;
  }
  return TS_OK;
}

// The same for ops that read positions: a sequence has at least the positions of its rows.
inline int32_t check_positions(const ts_state& state, const ts_indices& slots, const ts_sequences& batch, int64_t rows, int64_t elements) {
  const int32_t status = check_states(state, slots, batch, rows, elements);
  if (status != TS_OK) return status;
  for (int64_t s = 0; s < batch.count; ++s)
    if (batch.context_tokens[s] < batch.row_starts[s + 1] - batch.row_starts[s]) return TS_BAD_SHAPE;
  return TS_OK;
}

// Each of the following functions returns TS_OK, or the status of what is wrong with an op's operands. compress has one or two series of
// entries.
inline int32_t check_shapes(const ts_compress_args& a) {
  const int64_t dim = width_of(a.out), series = dim < 1 ? 0 : width_of(a.x) / (2 * dim);
  if (series < 1 || series > 2 || width_of(a.x) != 2 * series * dim || a.out.rows != a.x.rows || a.rate < 1) return TS_BAD_SHAPE;
  if (a.bias.length != a.rate * series * dim) return TS_BAD_SHAPE;
  return check_positions(a.state, a.slots, a.batch, a.x.rows, 3 * series * dim);
}

constexpr int kMostStateRows = 512;  // the most rows of one head's state in delta_rule

inline int32_t check_shapes(const ts_delta_rule_args& a) {
  const int64_t heads = a.v.heads, rows = a.v.rows, gates = width_of(a.a);
  if (!same_shape(a.out, a.v) || !same_shape(a.q, a.k) || a.k.rows != rows || a.a.rows != rows || a.b.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.v.dim < 1 || a.k.dim < 1 || a.k.dim > kMostStateRows || a.k.heads < 1 || heads % a.k.heads != 0) return TS_BAD_SHAPE;
  if ((gates != heads && gates != heads * a.k.dim) || width_of(a.b) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.dt_bias.length != gates) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, rows, heads * a.k.dim * a.v.dim);
}

inline int32_t check_shapes(const ts_gated_norm_args& a) {
  const int64_t width = width_of(a.out);
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (a.out.rows != a.x.rows || a.out.rows != a.gate.rows || width_of(a.x) != width || width_of(a.gate) != width) return TS_BAD_SHAPE;
  if (a.groups < 1 || width < 1 || width % a.groups != 0) return TS_BAD_SHAPE;
  return a.weight.length != width && a.weight.length != width / a.groups ? TS_BAD_SHAPE : TS_OK;
}

inline int32_t check_shapes(const ts_mlstm_args& a) {
  const int64_t heads = a.q.heads, rows = a.q.dim, width = a.v.dim, count = a.q.rows;
  if (heads < 1 || rows < 1 || rows > 4096 || width < 1 || a.k.heads != heads || a.k.dim != rows || a.k.rows != count) return TS_BAD_SHAPE;
  if (a.v.heads != heads || a.v.rows != count || a.out.heads != heads || a.out.dim != width || a.out.rows != count) return TS_BAD_SHAPE;
  if (width_of(a.input_gate) != heads || width_of(a.forget_gate) != heads) return TS_BAD_SHAPE;
  if (a.input_gate.rows != count || a.forget_gate.rows != count) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, count, heads * (rows * width + rows + 1));
}

inline int32_t check_shapes(const ts_rg_lru_args& a) {
  const int64_t channels = width_of(a.x);
  const auto fits = [&](const ts_value& each) { return each.rows == a.x.rows && width_of(each) == channels; };
  if (channels < 1 || a.rates.length != channels) return TS_BAD_SHAPE;
  if (!fits(a.out) || !fits(a.input_gate) || !fits(a.recurrent_gate)) return TS_BAD_SHAPE;
  return check_positions(a.state, a.slots, a.batch, a.x.rows, channels);
}

inline int32_t check_shapes(const ts_selective_scan_args& a) {
  const int64_t channels = width_of(a.x), numbers = width_of(a.b), rows = a.x.rows;
  if (channels < 1 || numbers < 1 || width_of(a.out) != channels || width_of(a.dt) != channels || width_of(a.c) != numbers) return TS_BAD_SHAPE;
  if (a.out.rows != rows || a.dt.rows != rows || a.b.rows != rows || a.c.rows != rows) return TS_BAD_SHAPE;
  if (a.decay.length != numbers * channels || a.skip.length != channels) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, rows, numbers * channels);
}

inline int32_t check_shapes(const ts_short_conv_args& a) {
  const int64_t channels = width_of(a.x);
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  if (channels < 1 || a.out.rows != a.x.rows || width_of(a.out) != channels) return TS_BAD_SHAPE;
  if (a.taps.length < 2 * channels || a.taps.length % channels != 0) return TS_BAD_SHAPE;
  if (a.bias.data != nullptr && a.bias.length != channels) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, a.x.rows, a.taps.length - channels);
}

inline int32_t check_shapes(const ts_ssd_scan_args& a) {
  const int64_t heads = a.x.heads, rows = a.x.rows;
  if (!same_shape(a.out, a.x) || !same_shape(a.b, a.c) || a.b.rows != rows || a.dt.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.x.dim < 1 || a.b.dim < 1 || a.b.heads < 1 || heads % a.b.heads != 0 || width_of(a.dt) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.skip.length != heads || a.dt_bias.length != heads) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, rows, heads * a.b.dim * a.x.dim);
}

inline int32_t check_shapes(const ts_token_shift_args& a) {
  const int64_t width = width_of(a.x);
  if (a.out.rows != a.x.rows || width < 1 || width_of(a.out) % width != 0 || a.mix.length != width_of(a.out)) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, a.x.rows, width);
}

constexpr float kBeforeTheFirst = -1e38f;  // the state of wkv4 before the first token

inline int32_t check_shapes(const ts_wkv4_args& a) {
  const int64_t channels = width_of(a.k);
  const auto fits = [&](const ts_value& each) { return each.rows == a.k.rows && width_of(each) == channels; };
  if (channels < 1 || a.first.length != channels || a.decay.length != channels || !fits(a.out) || !fits(a.v)) return TS_BAD_SHAPE;
  return check_positions(a.state, a.slots, a.batch, a.k.rows, 3 * channels);
}

constexpr int kMostHeadRows = 256;  // the most rows of one head's state in wkv6 and wkv7

// Checks the operands that wkv6 and wkv7 have.
template <class Args>
int32_t check_wkv(const Args& a) {
  const int64_t width = width_of(a.v);
  if (!same_shape(a.out, a.v) || !same_shape(a.r, a.v) || !same_shape(a.w, a.v) || !same_shape(a.k, a.v)) return TS_BAD_SHAPE;
  if (a.v.heads < 1 || a.v.dim < 1 || a.v.dim > kMostHeadRows || a.weight.length != width || a.bias.length != width) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, a.v.rows, width * a.v.dim);
}

inline int32_t check_shapes(const ts_wkv6_args& a) { return a.first.length != width_of(a.v) ? TS_BAD_SHAPE : check_wkv(a); }

inline int32_t check_shapes(const ts_wkv7_args& a) {
  const int64_t width = width_of(a.v);
  if (!same_shape(a.a, a.v)) return TS_BAD_SHAPE;
  return a.removal.length != width || a.growth.length != width || a.bonus.length != width ? TS_BAD_SHAPE : check_wkv(a);
}

}  // namespace twostroke
