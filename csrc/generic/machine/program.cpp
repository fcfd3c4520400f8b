// ts_run: runs the calls of one step, one after the other, without a return to the caller in between.
#include <string.h>

#include <initializer_list>

#include "twostroke/context.h"
#include "twostroke/kernel_case.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace {

// Whether the positions of all rows are given, or none.
bool has_positions(const ts_indices& positions, int64_t rows) { return positions.data == nullptr || positions.count == rows; }

}  // namespace

int32_t run(ts_context* context, const ts_attention_args& a) {
  if (a.layer == nullptr || a.out.rows != a.q.rows || a.out.heads != a.q.heads || a.layer->latent != 0) return TS_BAD_SHAPE;
  if (a.q.dim != a.layer->head_dim || a.out.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  const ts_sequences& s = a.batch;
  if (s.count > 0 && s.row_starts[s.count] != a.q.rows) return TS_BAD_INDEX;
  for (const ts_vector& each : {a.sinks, a.slopes})
    if (each.data != nullptr && each.length != a.q.heads) return TS_BAD_SHAPE;
  return ts_attention(context, a.layer, a.q.data, a.q.stride, a.q.heads, s.row_starts, s.context_tokens, s.count, s.page_table,
                      s.max_pages, static_cast<float>(a.scale), static_cast<int32_t>(a.window), static_cast<float>(a.soft_cap), a.sinks.data,
                      a.slopes.data, static_cast<int32_t>(a.ahead), a.out.data, a.out.stride);
}

int32_t run(ts_context* context, const ts_feed_forward_args& a) {
  if (a.gate_up == nullptr || a.down == nullptr || a.out.rows != a.x.rows || a.middle.rows != a.x.rows) return TS_BAD_SHAPE;
  if (width_of(a.x) != a.gate_up->columns || width_of(a.out) != a.down->rows || width_of(a.middle) != a.down->columns) return TS_BAD_SHAPE;
  if (!has_positions(a.positions, a.x.rows)) return TS_BAD_SHAPE;
  const ProductRows rows = {a.x.data, a.x.stride, a.x.rows, a.out.data, a.out.stride, a.positions.data};
  return feed_forward(context, a.gate_up, a.down, rows, a.middle.data, a.middle.stride);
}

int32_t run(ts_context* context, const ts_kv_write_args& a) {
  if (a.layer == nullptr || a.layer->latent != 0 || a.k.rows != a.v.rows || a.slots.count != a.k.rows) return TS_BAD_SHAPE;
  if (a.k.heads != a.layer->kv_heads || a.k.dim != a.layer->head_dim) return TS_BAD_SHAPE;
  if (a.v.heads != a.layer->kv_heads || a.v.dim != a.layer->value_dim) return TS_BAD_SHAPE;
  return ts_kv_write(context, a.layer, a.k.data, a.k.stride, a.v.data, a.v.stride, a.slots.data, a.slots.count);
}

namespace {

// Computes the product of an op with one matrix. gated: half the rows of the matrix, or 0.
template <class Args>
int32_t product(ts_context* context, const Args& a, int64_t gated, Finish finish) {
  const int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  const bool fits = a.out.rows == a.x.rows && width_of(a.x) == a.weight->columns && width_of(a.out) == (gated > 0 ? gated : a.weight->rows);
  if (!fits || !has_positions(a.positions, a.x.rows)) return TS_BAD_SHAPE;
  return multiply(context, a.weight, {a.x.data, a.x.stride, a.x.rows, a.out.data, a.out.stride, a.positions.data}, gated, finish);
}

}  // namespace

int32_t run(ts_context* context, const ts_linear_args& a) { return product(context, a, 0, finish_store); }

int32_t run(ts_context* context, const ts_linear_add_args& a) { return product(context, a, 0, finish_add); }

int32_t run(ts_context* context, const ts_linear_silu_args& a) {
  const int32_t status = check_weight(a.weight);
  if (status != TS_OK) return status;
  return a.weight->rows % 2 != 0 ? TS_BAD_SHAPE : product(context, a, a.weight->rows / 2, finish_silu);
}

namespace {

typedef int32_t (*Runner)(ts_context*, const int64_t* words);

template <typename Args>
int32_t run_words(ts_context* context, const int64_t* words) {
  return run(context, *reinterpret_cast<const Args*>(words));
}

struct Entry {
  const char* signature;
  Runner runner;
  int64_t words;
  const char* (*kernel)(const KernelCase&);
};

#define F(kind, name) " " #kind " " #name ";"
#define OP(name, fields) {#name ":" fields, run_words<ts_##name##_args>, sizeof(ts_##name##_args) / 8, kernel_of<ts_##name##_args>},
constexpr Entry kOps[] = {TS_OPS(OP)};
#undef OP
#undef F

#define OP(name, fields) static_assert(sizeof(ts_##name##_args) % 8 == 0 && alignof(ts_##name##_args) == 8, #name);
TS_OPS(OP)
#undef OP

constexpr int32_t kOpCount = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace
}  // namespace twostroke

const char* ts_op_signature(int32_t op) {
  using namespace twostroke;
  return op >= 0 && op < kOpCount ? kOps[op].signature : nullptr;
}

const char* ts_kernel(const ts_context* context, int32_t op, int32_t weight_kind, int32_t kv_kind, int64_t rows, int64_t head_dim) {
  using namespace twostroke;
  if (context == nullptr || op < 0 || op >= kOpCount || rows < 1 || head_dim < 1) return nullptr;
  if (weight_kind < TS_W_F32 || weight_kind > TS_W_LAST || kv_kind < TS_KV_F32 || kv_kind > TS_KV_INT4) return nullptr;
  return kOps[op].kernel({weight_kind, kv_kind, rows, head_dim, ts_reads_in_turn(context)});
}

int32_t ts_run(ts_context* context, const int64_t* words, int64_t count, int64_t* ran) {
  using namespace twostroke;
  *ran = 0;
  if (context == nullptr || (words == nullptr && count > 0)) return TS_BAD_POINTER;
  for (int64_t at = 0; at < count; ++*ran) {
    const int64_t op = words[at++];
    if (op < 0 || op >= kOpCount || at + kOps[op].words > count) return TS_BAD_FORMAT;
    const int32_t status = kOps[op].runner(context, words + at);
    if (status != TS_OK) return status;
    at += kOps[op].words;
  }
  return TS_OK;
}
