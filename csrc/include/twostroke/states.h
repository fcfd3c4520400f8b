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

// Returns TS_OK, or the status of what is wrong with the operands of compress, which has one or two series of entries.
inline int32_t check_compress(const ts_compress_args& a) {
  const int64_t dim = width_of(a.out), series = dim < 1 ? 0 : width_of(a.x) / (2 * dim);
  if (series < 1 || series > 2 || width_of(a.x) != 2 * series * dim || a.out.rows != a.x.rows || a.rate < 1) return TS_BAD_SHAPE;
  if (a.bias.length != a.rate * series * dim) return TS_BAD_SHAPE;
  const int32_t status = check_states(a.state, a.slots, a.batch, a.x.rows, 3 * series * dim);
  if (status != TS_OK) return status;
  for (int64_t s = 0; s < a.batch.count; ++s)
    if (a.batch.context_tokens[s] < a.batch.row_starts[s + 1] - a.batch.row_starts[s]) return TS_BAD_SHAPE;
  return TS_OK;
}

// Returns TS_OK, or the status of what is wrong with the operands of rg_lru.
inline int32_t check_rg_lru(const ts_rg_lru_args& a) {
  const int64_t channels = width_of(a.x);
  const auto fits = [&](const ts_value& each) { return each.rows == a.x.rows && width_of(each) == channels; };
  if (channels < 1 || a.rates.length != channels) return TS_BAD_SHAPE;
  if (!fits(a.out) || !fits(a.input_gate) || !fits(a.recurrent_gate)) return TS_BAD_SHAPE;
  const int32_t status = check_states(a.state, a.slots, a.batch, a.x.rows, channels);
  if (status != TS_OK) return status;
  for (int64_t s = 0; s < a.batch.count; ++s)
    if (a.batch.context_tokens[s] < a.batch.row_starts[s + 1] - a.batch.row_starts[s]) return TS_BAD_SHAPE;
  return TS_OK;
}

// Returns TS_OK, or the status of what is wrong with the operands of mlstm.
inline int32_t check_mlstm(const ts_mlstm_args& a) {
  const int64_t heads = a.q.heads, rows = a.q.dim, width = a.v.dim, count = a.q.rows;
  if (heads < 1 || rows < 1 || rows > 4096 || width < 1 || a.k.heads != heads || a.k.dim != rows || a.k.rows != count) return TS_BAD_SHAPE;
  if (a.v.heads != heads || a.v.rows != count || a.out.heads != heads || a.out.dim != width || a.out.rows != count) return TS_BAD_SHAPE;
  if (width_of(a.input_gate) != heads || width_of(a.forget_gate) != heads) return TS_BAD_SHAPE;
  if (a.input_gate.rows != count || a.forget_gate.rows != count) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, count, heads * (rows * width + rows + 1));
}

constexpr float kBeforeTheFirst = -1e38f;  // the state of wkv4 before the first token

// Returns TS_OK, or the status of what is wrong with the operands of wkv4.
inline int32_t check_wkv4(const ts_wkv4_args& a) {
  const int64_t channels = width_of(a.k);
  const auto fits = [&](const ts_value& each) { return each.rows == a.k.rows && width_of(each) == channels; };
  if (channels < 1 || a.first.length != channels || a.decay.length != channels || !fits(a.out) || !fits(a.v)) return TS_BAD_SHAPE;
  const int32_t status = check_states(a.state, a.slots, a.batch, a.k.rows, 3 * channels);
  if (status != TS_OK) return status;
  for (int64_t s = 0; s < a.batch.count; ++s)
    if (a.batch.context_tokens[s] < a.batch.row_starts[s + 1] - a.batch.row_starts[s]) return TS_BAD_SHAPE;
  return TS_OK;
}

constexpr int kMostHeadRows = 256;  // the most rows of one head's state in wkv6 and wkv7

// Returns TS_OK, or the status of what is wrong with the operands that both scans of RWKV have.
template <class Args>
int32_t check_wkv(const Args& a) {
  const int64_t width = width_of(a.v);
  if (!same_shape(a.out, a.v) || !same_shape(a.r, a.v) || !same_shape(a.w, a.v) || !same_shape(a.k, a.v)) return TS_BAD_SHAPE;
  if (a.v.heads < 1 || a.v.dim < 1 || a.v.dim > kMostHeadRows || a.weight.length != width || a.bias.length != width) return TS_BAD_SHAPE;
  return check_states(a.state, a.slots, a.batch, a.v.rows, width * a.v.dim);
}

}  // namespace twostroke
