// Arguments of kernels that go through sequences token by token; see arguments.h.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

// The rows of a sequence, and the place of its state.
struct StateArgs {
  float* data;
  const int32_t *slots, *row_starts;
  int64_t stride;
};

struct ConvArgs {  // arguments of short_conv and token_shift
  StateArgs state;
  float* out;
  const float *x, *taps, *bias;
  int64_t out_stride, x_stride, channels, width, activation, parts;
  int64_t tokens, chunks;  // tokens of one thread, and the chunks of this size that the longest sequence has
};

struct CompressArgs {  // arguments of compress, which makes `series` series of entries
  StateArgs state;
  float* out;
  const float *x, *bias;
  const int32_t* context_tokens;
  int64_t out_stride, x_stride, dim, series, rate, parts;
};

struct RgLruArgs {  // arguments of rg_lru
  StateArgs state;
  float* out;
  const float *x, *input_gate, *recurrent_gate, *rates;
  const int32_t* context_tokens;
  int64_t out_stride, x_stride, input_stride, recurrent_stride, channels, parts;
};

struct Wkv4Args {  // arguments of wkv4
  StateArgs state;
  float* out;
  const float *k, *v, *first, *decay;
  const int32_t* context_tokens;
  int64_t out_stride, k_stride, v_stride, channels, parts;
  float least;
};

struct MlstmArgs {  // arguments of mlstm
  StateArgs state;
  float* out;
  const float *q, *k, *v, *input_gate, *forget_gate;
  int64_t out_stride, q_stride, k_stride, v_stride, input_stride, forget_stride, heads, rows, width;
  float scale, eps;
};

struct SelectiveArgs {  // arguments of selective_scan
  StateArgs state;
  float* out;
  const float *x, *dt, *b, *c, *decay, *skip;
  int64_t out_stride, x_stride, dt_stride, b_stride, c_stride, channels, numbers, parts;
};

struct SsdArgs {  // arguments of ssd_scan
  StateArgs state;
  float* out;
  const float *x, *b, *c, *dt, *decay, *skip, *dt_bias;
  int64_t out_stride, x_stride, b_stride, c_stride, dt_stride, heads, width, groups, numbers, parts;
  float dt_least, dt_most;
};

struct DeltaArgs {  // arguments of delta_rule
  StateArgs state;
  float* out;
  const float *q, *k, *v, *a, *b, *decay, *dt_bias;
  int64_t out_stride, q_stride, k_stride, v_stride, a_stride, b_stride, heads, key_heads, rows, width, gates, parts;
  float strength, query_factor, lowest;
};

struct WkvArgs {  // arguments of wkv6 and wkv7
  StateArgs state;
  float* out;
  // wkv6 uses `first`; wkv7 uses a, removal, growth and bonus
  const float *r, *w, *k, *v, *a, *first, *removal, *growth, *bonus, *weight, *bias;
  int64_t out_stride, r_stride, w_stride, k_stride, v_stride, a_stride, heads, width;
  float eps;
};

struct GatedNormArgs {  // arguments of gated_norm; a row has `groups` groups of `width` columns
  float* out;
  const float *x, *gate, *weight;
  int64_t out_stride, x_stride, gate_stride, groups, width, weight_step, activation, gate_first;
  float eps;
};

}  // namespace cuda
}  // namespace twostroke
