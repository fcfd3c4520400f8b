// The arguments of the kernels of csrc/cuda, and their list. All addresses are the device's. Strides are in elements. `parts`: blocks
// that share one row, where a row is longer than a block has threads.
// Knows: what kernels are given. Must not know: who starts them.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {
namespace cuda {

constexpr int kThreads = 256;        // of a block of the kernels that go element by element
constexpr int kNormThreads = 128;
constexpr int kGroupThreads = 64;    // of quantize, kv_write and attention
constexpr int kProductRows = 4;      // rows of a block of linear_whole, and groups that it works on at once
constexpr int kProductThreads = kProductRows * TS_PANEL_ROWS;
constexpr int kMostDim = 512;        // of a head
constexpr int kSeriesTerms = 13;     // of 2^x in weigh

struct ElementArgs {  // add, activate, gate, multiply, scale, soft_cap
  float* out;
  const float *x, *gate;
  int64_t out_stride, x_stride, gate_stride, width, parts, activation;
  int64_t shared;  // elements of x that share a gate
  float factor;
  float limit, shift;  // of gate; limit: 0 for none
};

struct GatherArgs {
  float* out;
  const float* x;
  const int32_t* rows;
  int64_t out_stride, x_stride, width, parts;
};

struct EmbedArgs {
  float* out;
  const uint8_t* data;
  const uint16_t* scales;
  const int32_t* token_ids;
  int64_t out_stride, columns, padded, parts;
  int32_t kind, group;
};

struct NormArgs {  // rms_norm, layer_norm; a row is `vectors` vectors, one after another
  float* out;
  const float *x, *weight, *bias;
  int64_t out_stride, x_stride, vectors, columns;
  float eps;
};

struct RopeArgs {
  float* x;
  const float *cos_table, *sin_table;
  const int32_t* positions;
  int64_t stride, heads, dim, half, parts;
};

struct KVWriteArgs {
  ts_kv_layer layer;
  const float *k, *v;
  const int32_t* slots;
  int64_t k_stride, v_stride;
};

struct QuantizeArgs {  // rows (rows, columns) to q (rows, padded), scales and corrections (rows, groups)
  const float* x;
  int8_t* q;
  float* scales;
  int32_t* corrections;
  int64_t x_stride, columns, padded, group, groups;
};

struct LinearArgs {  // out = or += x @ W.T + bias
  float* out;
  const float* x;  // of linear_float
  const uint8_t* data;
  const uint16_t* scales;
  const float* bias;
  const int8_t* q;  // these three of linear_whole
  const float* x_scales;
  const int32_t* corrections;
  int64_t out_stride, x_stride, tokens, rows, columns, padded, group, groups, panels;
  int32_t kind, add;
};

struct AttentionArgs {
  ts_kv_layer layer;
  float* out;
  const float *q, *sinks, *slopes;
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t q_stride, out_stride, heads, sequences, table_stride;
  float scale, soft_cap;
  int32_t window, ahead;
};

// The first position that a query at `position` sees. window below 0: the positions are cut into chunks of so many.
constexpr int64_t first_seen(int64_t window, int64_t position) {
  if (window < 0) return position - position % -window;
  return window > 0 && position >= window ? position - window + 1 : 0;
}

struct WeighArgs {  // peaks (rows,), weights (rows, count): src/twostroke/ops/token_weights.py
  const float* logits;
  float* peaks;
  uint64_t* weights;
  int64_t stride, count, parts;
  double scale, series[kSeriesTerms];
};

#define TS_CUDA_KERNELS(K)                                                                                                \
  K(add) K(activate) K(gate) K(multiply) K(scale) K(soft_cap) K(gather_rows) K(embed) K(rms_norm) K(layer_norm) K(rope) \
  K(kv_write) K(quantize) K(linear_whole) K(linear_float) K(attention_float) K(attention_whole) K(row_peak) K(weigh)

}  // namespace cuda
}  // namespace twostroke
