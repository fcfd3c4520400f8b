// Arguments of kernels over pages of entries; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"

namespace twostroke {
namespace cuda {

struct EntryWriteArgs {
  ts_kv_layer layer;
  const float* rows;
  const int32_t *slots, *positions;
  int64_t stride, dim, rate;
};

// chosen: the entries that each row sees, in rising order, then -1; before: the results of an earlier call. Both may be NULL.
struct EntryArgs {  // arguments of entry_attention
  ts_kv_layer layer;
  float* out;
  const float *q, *chosen, *before, *sinks;
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t out_stride, q_stride, chosen_stride, before_stride, heads, dim, out_dim, choices, sequences, table_stride, rate, window;
  float scale;
};

}  // namespace cuda
}  // namespace twostroke
