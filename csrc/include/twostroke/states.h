// What ops that go through a sequence token by token share: where a sequence's state lies, which rows are its own.
// Knows: the operands of a step. Must not know: what a state means.
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

// TS_OK where the sequences divide `rows` rows and each has a slot of `elements` floats. No two may have the same one: the caller sees to it.
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

}  // namespace twostroke
