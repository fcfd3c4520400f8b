// The arguments of the kernels of csrc/cuda, and the list of these kernels. All addresses are device addresses. Strides count elements.
// `parts` is the number of blocks that share one row, where a row is longer than a block has threads. The kernel of an op takes the op's
// operands, ts_NAME_args, where it needs no weights and no scratch memory.
#pragma once
#include <stdint.h>

#include "twostroke/attention/places.h"
#include "twostroke/cuda/arguments/pages.h"
#include "twostroke/cuda/arguments/rows.h"
#include "twostroke/cuda/arguments/samples.h"
#include "twostroke/cuda/arguments/stage.h"
#include "twostroke/cuda/arguments/tiles.h"
#include "twostroke/cuda/products/packed.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace cuda {

constexpr int kThreads = 256;  // threads of a block in the kernels with a thread for each channel
constexpr int kFourThreads = 128;  // threads of a block in the kernels with a thread for each four elements
constexpr int kNormThreads = 128;
constexpr int kNarrow = 256;  // the most elements of a vector of head_norm
constexpr int kLowRankThreads = 16;  // threads for two ranks of a row in low_rank_down: one for each partial sum
constexpr int kNarrowThreads = 16;  // threads for a vector of head_norm: one for each partial sum
constexpr int kGroupThreads = 64;  // threads of a block of kv_write and attention
constexpr int kQuantizeThreads = 128;  // threads of a block of quantize
constexpr int kOneThreads = 512;  // threads of a block of linear_one
constexpr int kOneStrip = 16;  // rows of a matrix that a block of linear_one has at once
constexpr int kOneColumns = 28672;  // the most columns of activations that linear_one keeps in shared memory from beginning to end
constexpr int kFewThreads = 256;  // threads of a block of linear_few
constexpr int kFewStrip = 32;
constexpr int kFewRows = 16;  // the most rows of activations of linear_few; with more, linear_tile runs
constexpr int kFewTile = 32;
constexpr int kStreamThreads = 256;  // threads of a block of linear_row and linear_rows
constexpr int kStreamStrip = 32;  // rows of a matrix that such a block has at once
constexpr int kStreamRows = 8;  // the most rows of activations of linear_rows
constexpr int kStreamGroup = 256;  // the columns of a group of the weights that these kernels multiply
constexpr int kStreamColumns = 28672;  // the most columns of linear_row, which keeps its row in shared memory
constexpr int kStoredThreads = 512;  // the most threads of a block of linear_stored, and those that a multiprocessor holds at once
constexpr int kStoredStrip = 32;  // eight threads of a block have this many rows of one group
constexpr int kMostDim = 512;  // the most dimensions of a head
constexpr int kSegment = 512;        // positions whose sums are merged in order
constexpr int kMostLatent = 1024;  // the most numbers of a position's latent, with the dimensions after it
constexpr int kMostChoices = 1024;  // the most experts of one layer
constexpr int kWholeColumns = 8;  // pairs of a row and a query head in a block of attention over int8 and int4
constexpr int kScoreThreads = 128, kValueThreads = 512;  // threads of its blocks for scores, and for sums of V
constexpr int kScoreParts = 4;  // the blocks that share the scores of a segment
constexpr int kMostSummed = 512;  // the most sums of V of a block, with all columns and dimensions
constexpr int kFloatColumns = 16;  // the same number over f32 and bf16; the next one is for sequences with one row
constexpr int kOneRowColumns = 4;
constexpr int kPlaceRows = 8;  // rows of a block of place_scores
constexpr int kEntryTile = 64;  // entries that a block multiplies by a vector at once

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The blocks of a row, in kernels with a thread for each channel, and in those with a thread for each four elements.
constexpr int64_t parts_of(int64_t width) { return divide_up(width, kThreads); }
constexpr int64_t four_parts(int64_t width) { return divide_up(width, 4 * kFourThreads); }

// The operands of an op whose kernel has `tokens` tokens in a thread. chunks: the chunks of this size that the longest sequence has.
template <class Op>
struct InChunks : Op {
  int64_t tokens, chunks;
};
using ShortConvArgs = InChunks<ts_short_conv_args>;
using TokenShiftArgs = InChunks<ts_token_shift_args>;

// The operands of an op with the layer itself in place of its address, which is one of the host.
template <class Op>
struct WithLayer : Op {
  ts_kv_layer layer;
};
using EntryArgs = WithLayer<ts_entry_attention_args>;
using EntryWriteArgs = WithLayer<ts_entry_write_args>;
using LatentWriteArgs = WithLayer<ts_latent_write_args>;
struct KVWriteArgs : WithLayer<ts_kv_write_args> {
  PageLayout pages;
};

struct EmbedArgs {
  float* out;
  const uint8_t* data;
  const uint16_t* scales;
  const int32_t* token_ids;
  int64_t out_stride, columns, padded, panel_bytes;
  int32_t kind, group;
  StoredLayout stored;
  int64_t rotated;  // the value of ts_weight
};

// arguments of rms_norm and head_norm; each of `rows` rows has `vectors` vectors, one after another
struct NormArgs {
  float* out;
  const float *x, *weight;
  int64_t out_stride, x_stride, rows, vectors, columns;
  float eps;
};

constexpr int32_t kMostRotatedDims = 1024;  // the most dimensions of a head of rotate_heads

struct QuantizeArgs {  // rounds rows (rows, columns) to q (rows, padded), scales and corrections (rows, groups)
  const float* x;
  int8_t* q;
  float* scales;
  int32_t* corrections;
  int64_t x_stride, columns, padded, group, groups, parts;
  int64_t rotated;  // the value of ts_weight
};

constexpr int kMostFirst = 64;  // the most rows with two codes that are computed together

// Rows with two codes. made (2 * count, padded): the rows of x, rotated where weights are, then what rounding loses of them. products
// (2 * count, sums): the products of both, without bias. kept (count, width): the old content of out, where products are added to it.
// units: the groups of a row, or its 128 columns each for fine kinds; a row's units are shared out among `parts` blocks.
struct FirstArgs {
  const float* x;
  float *made, *products, *kept, *out;
  const float* bias;
  int64_t x_stride, out_stride, columns, padded, group, units, parts, count, sums, width;
  int64_t rotated;  // the value of ts_weight
  int32_t fine, add, gated;  // fine: the value of StoredLayout
  int32_t rows[kMostFirst];
};

struct BestArgs {  // some rows of best_losses
  float* out;
  const float* logits;
  int32_t* ids;  // (rows of out, count): the rows of the matrix
  const float *lost, *values;  // the remainders (rows of out, padded), and the rows of the matrix (rows of out, count, padded)
  int64_t out_stride, logits_stride, width, first, rows, padded;  // width: the logits of a row; rows: those of the matrix
  int32_t count, rounded;  // rounded: whether the matrix is of an integer kind
};

// Groups that one warp rounds at once. It is the largest number that fits in registers.
constexpr int32_t groups_at_once(int64_t group) { return group <= 128 ? 4 : group <= 256 ? 2 : 1; }

struct LinearArgs {  // computes out = x @ W.T + bias, or adds it to out
  float* out;
  const float* x;  // linear_float alone uses it
  const uint8_t* data;
  const uint16_t* scales;
  const float* bias;
  const int8_t* q;  // linear_few and linear_rows use these three
  const float* x_scales;
  const int32_t* corrections;
  const int32_t* matrices;  // for a bank: the matrix of each row of x; NULL for one matrix
  int64_t out_stride, x_stride, tokens, rows, columns, padded, group, groups, panels, panel_bytes;
  int64_t parts;  // blocks that share the rows of a matrix, except in linear_float
  int32_t kind, add, gated;  // gated: out is silu(products of the matrix' first rows) times the products of its last rows
  int32_t aligned;  // for float weights: rows of x are whole fours at multiples of 16 bytes
  StoredLayout stored;
  int64_t rotated;  // the value of ts_weight
};

// Rows of x of a block of linear_float and its variants. A block of linear_float, _some or _more has 32 rows of the matrix, of _many 64,
// and of _wide 128.
constexpr int kFloatFew = 2, kFloatSome = 8, kFloatMore = 16, kFloatMany = 32, kFloatWide = 64;
// threads of a block of linear_float, of _more, and of the others
constexpr int kFloatFewThreads = 128, kFloatMoreThreads = 128, kFloatThreads = 256;

struct AttentionArgs {
  ts_kv_layer layer;
  PageLayout pages;  // kernels of latents do not use it
  float* out;
  const float *q, *sinks, *slopes;
  const int32_t *row_starts, *context_tokens, *page_table;
  // for each row: one after the last position that it sees at least; then tiles have one row. NULL where there are none
  const int32_t* ends;
  int64_t q_stride, out_stride, heads, sequences, table_stride;
  float scale, soft_cap;
  int32_t window, ahead;
  // for latents: the part of the query that is multiplied by rotary keys; and the positions that each row sees, rising, then -1 (NULL: all)
  const float *q_turned, *chosen;
  int64_t turned_stride, chosen_stride, choices;
  // Fields for blocks of one segment.
  // group: the query heads of a KV head. partials (tiles of rows, together, heads, segments): partial results. first_tile: the number of tiles of the launches before. together:
  // the rows of a tile. chunks: the blocks that share the query heads of a KV head. These blocks take the sequences of more than `above`
  // and at most `few` rows.
  // prompt_blocks: the number of blocks of one KV head, where a warp goes over the whole context.
  // scores (blocks, score_columns, kSegment), over int8 and int4. Then `slices` blocks have 32 * units dimensions of V each.
  float *partials, *scores;
  int64_t first_tile, prompt_blocks;
  int32_t group, score_columns, slices, units;
  int32_t together, chunks, segments, above, few, one_each;  // one_each: 1 where each sequence has one row
  StageShape stage;
  Places places;  // the whole-number kernels of prompts do not use it
};

// index_scores and entry_scores compute scores (rows, positions) of the rows from first_row on. index_choose writes the `count` largest of
// them to out. A score belongs to `rate` positions and comes from a key of `dim` numbers.
struct SelectArgs {
  ts_kv_layer layer;
  float *out, *scores;
  const float *q, *weights;
  const int32_t *row_starts, *context_tokens, *page_table;
  int64_t out_stride, q_stride, weights_stride, heads, sequences, table_stride, first_row, positions, tiles, count, dim, rate;
};

// The results of a row and a query head over one segment: 16 sums of weights, the sums of V, and the peak.
constexpr int64_t kRowTotals = 16;
constexpr int64_t partial_floats(int64_t value_dim) { return kRowTotals + value_dim + 1; }

// The first position that a query at `position` sees. If window is below 0, positions are in chunks of -window, and a query sees its own
// chunk.
constexpr int64_t first_seen(int64_t window, int64_t position) {
  if (window < 0) return position - position % -window;
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// The kernel copies the token of told[pairs[2 i + 1]] to tokens[pairs[2 i]].
struct FollowArgs {
  int32_t* tokens;
  const int32_t* pairs;
  const SampledRow* told;
  int64_t count;
};

// Each kernel and its struct of arguments.
#define TS_CUDA_KERNELS(K)            \
  K(add_losses, ts_add_losses_args)   \
  K(add_pairs, PairArgs)              \
  K(attention_bf16, AttentionArgs)    \
  K(attention_f32, AttentionArgs)     \
  K(attention_int4, AttentionArgs)    \
  K(attention_int8, AttentionArgs)    \
  K(attention_merge, AttentionArgs)   \
  K(attention_prompt_bf16, AttentionArgs) \
  K(attention_prompt_f32, AttentionArgs) \
  K(attention_prompt_int4, AttentionArgs) \
  K(attention_prompt_int8, AttentionArgs) \
  K(attention_scores_int4, AttentionArgs) \
  K(attention_scores_int8, AttentionArgs) \
  K(best_losses, BestArgs)            \
  K(best_numbers, BestArgs)           \
  K(choice_numbers, NumberArgs)       \
  K(compress, ts_compress_args)       \
  K(count_pairs, PlaceArgs)           \
  K(delta_rule, ts_delta_rule_args)   \
  K(embed, EmbedArgs)                 \
  K(entry_attention, EntryArgs)       \
  K(entry_scores, SelectArgs)         \
  K(entry_write, EntryWriteArgs)      \
  K(first_put, FirstArgs)             \
  K(first_remainders, FirstArgs)      \
  K(follow, FollowArgs)               \
  K(gate, ts_gate_args)               \
  K(gated_norm, ts_gated_norm_args)   \
  K(gather_pairs, PairArgs)           \
  K(gather_rows, ts_gather_rows_args) \
  K(gaussian_cut, ts_gaussian_cut_args)\
  K(head_layer_norm, ts_head_layer_norm_args)\
  K(head_norm, NormArgs)              \
  K(idle_share, ts_idle_share_args)   \
  K(index_choose, SelectArgs)         \
  K(index_scores, SelectArgs)         \
  K(join_rows, ts_join_rows_args)     \
  K(kv_write, KVWriteArgs)            \
  K(latent_attention, AttentionArgs)  \
  K(latent_write, LatentWriteArgs)    \
  K(layer_norm, ts_layer_norm_args)   \
  K(linear_bank_int4, TileArgs)       \
  K(linear_bank_int8, TileArgs)       \
  K(linear_few, LinearArgs)           \
  K(linear_float, LinearArgs)         \
  K(linear_one, LinearArgs)           \
  K(linear_narrow_int4, TileArgs)     \
  K(linear_narrow_int8, TileArgs)     \
  K(linear_prompt_int4_1x2, TileArgs) \
  K(linear_prompt_int4_1x3, TileArgs) \
  K(linear_prompt_int4_2x2, TileArgs) \
  K(linear_prompt_int4_2x3, TileArgs) \
  K(linear_prompt_int8_1x2, TileArgs) \
  K(linear_prompt_int8_1x3, TileArgs) \
  K(linear_prompt_int8_2x2, TileArgs) \
  K(linear_prompt_int8_2x3, TileArgs) \
  K(linear_row_int4, LinearArgs)      \
  K(linear_row_int8, LinearArgs)      \
  K(linear_rows_int4, LinearArgs)     \
  K(linear_rows_int8, LinearArgs)     \
  K(linear_steps, TileArgs)           \
  K(linear_steps_flat4, TileArgs)     \
  K(linear_steps_flat8, TileArgs)     \
  K(linear_steps_super4_min, TileArgs)\
  K(linear_steps_super6, TileArgs)    \
  K(linear_float_many, LinearArgs)    \
  K(linear_float_more, LinearArgs)    \
  K(linear_float_some, LinearArgs)    \
  K(linear_float_wide, LinearArgs)    \
  K(linear_stored, LinearArgs)        \
  K(linear_stored_flat4, LinearArgs)  \
  K(linear_stored_flat8, LinearArgs)  \
  K(linear_stored_super4_min, LinearArgs)\
  K(linear_stored_super6, LinearArgs) \
  K(linear_tile_int4, TileArgs)       \
  K(linear_tile_int8, TileArgs)       \
  K(linear_wide_flat4, TileArgs)      \
  K(linear_wide_flat8, TileArgs)      \
  K(linear_wide_super4_min, TileArgs) \
  K(linear_wide_super6, TileArgs)     \
  K(low_rank_down, LowRankArgs)       \
  K(low_rank_up, LowRankArgs)         \
  K(match_rms, ts_match_rms_args)     \
  K(mix_streams, ts_mix_streams_args) \
  K(mlstm, ts_mlstm_args)             \
  K(multiply, ts_multiply_args)       \
  K(order_choices, ChoiceArgs)        \
  K(place_pairs, PlaceArgs)           \
  K(place_scores, ts_place_scores_args)\
  K(pointwise, ts_pointwise_args)     \
  K(quantize, QuantizeArgs)           \
  K(quantize_prompt, RoundArgs)       \
  K(quantize_steps, RoundArgs)        \
  K(quantize_tiles, RoundArgs)        \
  K(replace_rows, ts_replace_rows_args)\
  K(rg_lru, ts_rg_lru_args)           \
  K(rms_norm, NormArgs)               \
  K(rope, ts_rope_args)               \
  K(rotate_heads, ts_rotate_heads_args)\
  K(round_rows, ts_round_rows_args)   \
  K(route, ts_route_args)             \
  K(route_by_token, TokenRouteArgs)   \
  K(sample_best, SampleArgs)          \
  K(sample_choose, SampleArgs)        \
  K(sample_cut, SampleArgs)           \
  K(sample_keep, SampleArgs)          \
  K(sample_look, SampleArgs)          \
  K(sample_tell, SampleArgs)          \
  K(sample_weigh, SampleArgs)         \
  K(selective_scan, ts_selective_scan_args)\
  K(short_conv, ShortConvArgs)        \
  K(sparse_mixer, ts_sparse_mixer_args)\
  K(ssd_scan, ts_ssd_scan_args)       \
  K(stream_shares, ts_stream_shares_args)\
  K(take_columns, ts_take_columns_args)\
  K(token_shift, TokenShiftArgs)      \
  K(weigh_streams, ts_weigh_streams_args)\
  K(wkv4, ts_wkv4_args)               \
  K(wkv6, ts_wkv6_args)               \
  K(wkv7, ts_wkv7_args)

}  // namespace cuda
}  // namespace twostroke
