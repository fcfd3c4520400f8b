// The arguments of the kernels of csrc/cuda, and their list. All addresses are the device's. Strides are in elements. `parts`: blocks
// that share one row, where a row is longer than a block has threads.
// Knows: what kernels are given. Must not know: what starts them.
#pragma once
#include <stdint.h>

#include "twostroke/abi.h"
#include "twostroke/cuda/arguments/entries.h"
#include "twostroke/cuda/arguments/rows.h"
#include "twostroke/cuda/arguments/states.h"
#include "twostroke/cuda/packed.h"
#include "twostroke/cuda/sample_row.h"
#include "twostroke/token_weight.h"

namespace twostroke {
namespace cuda {

constexpr int kThreads = 256;        // of a block of the kernels that go channel by channel
constexpr int kFourThreads = 128;    // of a block of the kernels that go element by element, four elements a thread
constexpr int kNormThreads = 128;
constexpr int kNarrow = 256;         // elements of the longest vector of head_norm
constexpr int kLowRankThreads = 16;  // of two ranks of a row in low_rank_down: one for each partial sum
constexpr int kNarrowThreads = 16;   // of a vector of head_norm: one for each partial sum
constexpr int kGroupThreads = 64;    // of quantize, kv_write and attention
constexpr int kProductRows = 4;      // rows of a block of linear_whole, and groups that it works on at once
constexpr int kProductThreads = kProductRows * TS_PANEL_ROWS;
constexpr int kMostDim = 512;        // of a head
constexpr int kMostLatent = 1024;    // of a position's latent with what is behind it
constexpr int kMostChoices = 1024;   // experts of one layer
constexpr int kMostHeadRows = 256;   // of a head's state in wkv6 and wkv7
constexpr int kHeldNumbers = 64;     // of a column of a state that one thread keeps in registers
constexpr int kMostStateRows = 512;  // of a head's state in delta_rule
constexpr int kEntryTile = 64;       // entries whose products with a vector a block has at once

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
  int64_t out_stride, columns, padded, panel_bytes, parts;
  int32_t kind, group;
  StoredLayout stored;
};

struct NormArgs {  // rms_norm, layer_norm; of head_norm, each of `rows` rows is `vectors` vectors, one after another
  float* out;
  const float *x, *weight, *bias;
  int64_t out_stride, x_stride, rows, vectors, columns;
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
  const int32_t* matrices;  // of a bank: which one each row of x meets; NULL for one matrix
  int64_t out_stride, x_stride, tokens, rows, columns, padded, group, groups, panels, panel_bytes;
  int32_t kind, add;
  StoredLayout stored;
};

// Blocks of products with float weights: their threads, and how many rows of x by how many rows of the matrix a block has.
constexpr int kFloatFew = 2, kFloatSome = 16, kFloatMany = 64;  // rows of x of linear_float, linear_float_some, linear_float_many
constexpr int kFloatFewThreads = 128, kFloatSomeThreads = 128, kFloatManyThreads = 256;
constexpr int kFloatHalf = TS_PANEL_ROWS / 2;                   // rows of the matrix of the first two; of the last a whole panel

struct LatentWriteArgs {
  ts_kv_layer layer;
  const float* rows;
  const int32_t* slots;
  int64_t stride;
};

struct AttentionArgs {
  ts_kv_layer layer;
  float* out;
  const float *q, *sinks, *slopes;
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t q_stride, out_stride, heads, sequences, table_stride;
  float scale, soft_cap;
  int32_t window, ahead;
  const float *q_turned, *chosen;  // of latents: what meets the turned keys; positions that each row sees, rising, then -1 (NULL: all)
  int64_t turned_stride, chosen_stride, choices;
};

// index_scores, entry_scores: scores (rows, positions) of rows from first_row on; index_choose: their largest `count` to out. A score is of
// `rate` positions, by a key of `dim` numbers.
struct SelectArgs {
  ts_kv_layer layer;
  float *out, *scores;
  const float *q, *weights;
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t out_stride, q_stride, weights_stride, heads, sequences, table_stride, first_row, positions, tiles, count, dim, rate;
};

// The first position that a query at `position` sees. window below 0: positions are in chunks of -window, and it sees its own chunk.
constexpr int64_t first_seen(int64_t window, int64_t position) {
  if (window < 0) return position - position % -window;
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// told[first + r]: the result for logits[r]. scratch: adjusted, weights (rows, count). parts: blocks of a row of weights.
struct SampleArgs {
  const float* logits;
  const SampleRow* rows;
  SampledRow* told;
  float* adjusted;
  uint64_t* weights;
  int64_t stride, count, first, parts;
  double scale, series[kSeriesTerms];  // scale: of temperature 1
};

// Each kernel, and what it is given.
#define TS_CUDA_KERNELS(K)            \
  K(activate, ElementArgs)            \
  K(add, ElementArgs)                 \
  K(add_pairs, PairArgs)              \
  K(attention_float, AttentionArgs)   \
  K(attention_whole, AttentionArgs)   \
  K(compress, CompressArgs)           \
  K(delta_rule, DeltaArgs)            \
  K(embed, EmbedArgs)                 \
  K(entry_attention, EntryArgs)       \
  K(entry_scores, SelectArgs)         \
  K(entry_write, EntryWriteArgs)      \
  K(gate, ElementArgs)                \
  K(gated_norm, GatedNormArgs)        \
  K(gather_pairs, PairArgs)           \
  K(gather_rows, GatherArgs)          \
  K(gaussian_cut, NormArgs)           \
  K(head_norm, NormArgs)              \
  K(index_choose, SelectArgs)         \
  K(index_scores, SelectArgs)         \
  K(kv_write, KVWriteArgs)            \
  K(latent_attention, AttentionArgs)  \
  K(latent_write, LatentWriteArgs)    \
  K(layer_norm, NormArgs)             \
  K(linear_float, LinearArgs)         \
  K(linear_float_some, LinearArgs)    \
  K(linear_float_many, LinearArgs)    \
  K(linear_stored, LinearArgs)        \
  K(linear_whole, LinearArgs)         \
  K(linear_whole_bank, LinearArgs)    \
  K(low_rank_down, LowRankArgs)       \
  K(low_rank_up, LowRankArgs)         \
  K(match_rms, NormArgs)              \
  K(mix_streams, MixArgs)             \
  K(multiply, ElementArgs)            \
  K(order_choices, ChoiceArgs)        \
  K(quantize, QuantizeArgs)           \
  K(rms_norm, NormArgs)               \
  K(rope, RopeArgs)                   \
  K(route, RouteArgs)                 \
  K(route_by_token, RouteArgs)        \
  K(sample_adjust, SampleArgs)        \
  K(sample_best, SampleArgs)          \
  K(sample_choose, SampleArgs)        \
  K(sample_score, SampleArgs)         \
  K(sample_weigh, SampleArgs)         \
  K(sample_weigh_raw, SampleArgs)     \
  K(scale, ElementArgs)               \
  K(scale_columns, ElementArgs)       \
  K(selective_scan, SelectiveArgs)    \
  K(short_conv, ConvArgs)             \
  K(soft_cap, ElementArgs)            \
  K(sparse_mixer, MixerArgs)          \
  K(ssd_scan, SsdArgs)                \
  K(stream_shares, SharesArgs)        \
  K(take_columns, TakeArgs)           \
  K(token_shift, ConvArgs)            \
  K(weigh_streams, MixArgs)           \
  K(wkv6, WkvArgs)                    \
  K(wkv7, WkvArgs)                    \
  K(xielu, ElementArgs)

}  // namespace cuda
}  // namespace twostroke
