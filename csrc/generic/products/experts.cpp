// experts: a row's sum, over the experts that it chose, of weight * down(act(gate x) * up x), or of the block without a gate.
// One expert after the other: the rows that meet it are gathered, multiplied as rows of any product, and added to where they came from.
// So a row's sum runs in the order of its experts' numbers, and its bits depend on that row alone.
// Knows: ts_linear and ts_linear_silu, the ops gate and activate, how banks of packed weights lie. Must not know: how weights are chosen.
#include <string.h>

#include "twostroke/activation.h"
#include "twostroke/context.h"
#include "twostroke/checks.h"
#include "twostroke/linear.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

constexpr int64_t kMostRows = 1 << 24;  // whole numbers below it are exact in float32

const float* numbers_of(const ts_experts_args& a, int64_t row) { return a.routes.data + row * a.routes.stride + width_of(a.routes) / 2; }

// counts[e]: rows that chose e. False where a row holds what is no expert's number, or an expert twice.
bool count_rows(const ts_experts_args& a, int32_t* counts) {
  const int64_t chosen = width_of(a.routes) / 2;
  for (int64_t row = 0; row < a.x.rows; ++row) {
    const float* numbers = numbers_of(a, row);
    for (int64_t i = 0; i < chosen; ++i) {
      if (!(numbers[i] >= 0 && numbers[i] < static_cast<float>(a.gate_up->experts))) return false;
      const int64_t expert = static_cast<int64_t>(numbers[i]);
      if (static_cast<float>(expert) != numbers[i]) return false;
      for (int64_t before = 0; before < i; ++before) {
        if (numbers[before] == numbers[i]) return false;
      }
      ++counts[expert];
    }
  }
  return true;
}

// a.pairs: the rows that chose this expert, and its weight in each.
void find_rows(const ts_experts_args& a, int64_t expert) {
  const int64_t chosen = width_of(a.routes) / 2;
  float* pair = a.pairs.data;
  for (int64_t row = 0; row < a.x.rows; ++row) {
    const float *numbers = numbers_of(a, row), *weights = numbers - chosen;
    for (int64_t i = 0; i < chosen; ++i) {
      if (numbers[i] != static_cast<float>(expert)) continue;
      pair[0] = static_cast<float>(row);
      pair[1] = weights[i];
      pair += a.pairs.stride;
    }
  }
}

void clear_task(void* arg, int64_t row, int32_t) {
  const ts_experts_args& a = *static_cast<const ts_experts_args*>(arg);
  memset(a.out.data + row * a.out.stride, 0, static_cast<size_t>(width_of(a.out)) * 4);
}

void gather_task(void* arg, int64_t index, int32_t) {
  const ts_experts_args& a = *static_cast<const ts_experts_args*>(arg);
  const float* pair = a.pairs.data + index * a.pairs.stride;
  const float* from = a.x.data + static_cast<int64_t>(pair[0]) * a.x.stride;
  float* to = a.rows.data + index * a.rows.stride;
  const int64_t width = width_of(a.x);
  if (a.weigh_inputs == 0) {
    memcpy(to, from, static_cast<size_t>(width) * 4);
    return;
  }
  for (int64_t i = 0; i < width; ++i) to[i] = from[i] * pair[1];
}

void add_task(void* arg, int64_t index, int32_t) {
  const ts_experts_args& a = *static_cast<const ts_experts_args*>(arg);
  const float* pair = a.pairs.data + index * a.pairs.stride;
  const float* from = a.rows.data + index * a.rows.stride;
  float* out = a.out.data + static_cast<int64_t>(pair[0]) * a.out.stride;
  const int64_t width = width_of(a.out);
  const float weight = a.weigh_inputs != 0 ? 1.0f : pair[1];
  for (int64_t i = 0; i < width; ++i) out[i] += weight * from[i];
}

bool is_silu(const ts_experts_args& a) { return has_gate(a) && a.activation == kSilu && a.limit <= 0 && a.shift == 0; }

// The first `width` columns of the first `count` rows.
ts_value corner(const ts_value& value, int64_t count, int64_t width) { return {value.data, value.stride, count, 1, width}; }

// a.middle: what the gathered rows become before the second product.
int32_t first_half(ts_context* context, const ts_experts_args& a, const ts_weight& gate_up, int64_t count) {
  const ts_value &rows = a.rows, &middle = a.middle;
  if (is_silu(a)) return ts_linear_silu(context, &gate_up, rows.data, rows.stride, count, middle.data, middle.stride);
  const int32_t status = ts_linear(context, &gate_up, rows.data, rows.stride, count, middle.data, middle.stride);
  if (status != TS_OK) return status;
  const ts_value inner = corner(middle, count, a.down->columns);
  if (!has_gate(a)) return run(context, ts_activate_args{inner, a.activation});
  return run(context, ts_gate_args{inner, corner(middle, count, gate_up.rows), a.activation, a.limit, a.shift});
}

int32_t check(const ts_experts_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.x.rows >= kMostRows || width_of(a.rows) != width_of(a.x) || width_of(a.pairs) != 2) return TS_BAD_SHAPE;
  if (width_of(a.middle) != (is_silu(a) ? a.down->columns : a.gate_up->rows)) return TS_BAD_SHAPE;
  if (a.activation < 0 || a.activation >= kActivations) return TS_BAD_FORMAT;
  return a.rows.rows != a.x.rows || a.middle.rows != a.x.rows || a.pairs.rows != a.x.rows ? TS_BAD_SHAPE : TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_experts_args& a) {
  int32_t status = check(a);
  if (status != TS_OK) return status;
  int32_t counts[kMostExperts] = {};
  if (!count_rows(a, counts)) return TS_BAD_INDEX;
  ts_experts_args* arg = const_cast<ts_experts_args*>(&a);
  ts_parallel(context, a.out.rows, clear_task, arg);
  for (int64_t expert = 0; expert < a.gate_up->experts; ++expert) {
    const int64_t count = counts[expert];
    if (count == 0) continue;
    const ts_weight gate_up = matrix_of(*a.gate_up, expert), down = matrix_of(*a.down, expert);
    find_rows(a, expert);
    ts_parallel(context, count, gather_task, arg);
    status = first_half(context, a, gate_up, count);
    // The gathered rows are used up: their memory takes the result.
    if (status == TS_OK) status = ts_linear(context, &down, a.middle.data, a.middle.stride, count, a.rows.data, a.rows.stride);
    if (status != TS_OK) return status;
    ts_parallel(context, count, add_task, arg);
  }
  return TS_OK;
}

}  // namespace twostroke
