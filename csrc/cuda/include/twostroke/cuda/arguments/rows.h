// Arguments of kernels for experts, adapters, orders of columns, streams and places; see arguments.h.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

struct RouteArgs {  // arguments of route and route_by_token
  float* out;
  const float *logits, *bias, *shares;  // bias and shares may be NULL
  int64_t out_stride, logits_stride, experts, count, normalised, scores, groups, kept, best;
  float least, added, factor;
  const int32_t* token_ids;  // route_by_token alone uses these two
  const float* table;
};

struct MixerArgs {  // arguments of sparse_mixer
  float* out;
  const float* logits;
  int64_t out_stride, logits_stride, experts, count;
  float apart;
};

// Pairs of a row and an expert that it chose, in the order of the experts' numbers. Row r has the pairs r * chosen .. (r + 1) * chosen.
// idle: the count of numbers after the experts' numbers that add nothing. Their pairs have the weight 0 and the matrices of the last expert.
struct ChoiceArgs {  // arguments of order_choices
  const float* routes;
  int32_t* matrices;
  float* weights;
  int64_t routes_stride, rows, chosen, experts, idle;
};

// arguments of choice_numbers: the matrices that a row chose, as integers in the order of its choices; 0 where there is no such matrix
struct NumberArgs {
  const float* routes;
  int32_t* matrices;
  int64_t routes_stride, rows, chosen, experts;
};

struct IdleArgs {  // arguments of idle_share
  float* out;
  const float* routes;
  int64_t out_stride, routes_stride, rows, chosen, experts;
};

struct PairArgs {  // gather_pairs copies rows of x to (pairs, width); add_pairs adds (pairs, width) to rows of out
  float* out;
  const float *x, *weights;  // weights: NULL where all are 1
  int64_t out_stride, x_stride, chosen, width, parts;
  const int32_t* places;  // for add_pairs: the place of each pair's row of x; NULL where they are in order
};

struct TakeArgs {  // arguments of take_columns, which takes `width` of `from` columns
  float* out;
  const float *x, *order;
  int64_t out_stride, x_stride, width, from, parts;
};

struct PlaceScoreArgs {  // place_scores multiplies x (rows, heads, dim) by table (heads, dim, places)
  float* out;
  const float *x, *table;
  int64_t out_stride, x_stride, rows, heads, dim, places, parts;
};

struct GivenArgs {  // arguments of replace_rows
  float* out;
  const float *x, *given;
  const int32_t* marks;
  int64_t out_stride, x_stride, given_stride, width, parts;
  int32_t added;
};

struct JoinArgs {  // arguments of join_rows, which makes rows of `width` columns from rows of `narrow` columns
  float* out;
  const float* x;
  const int32_t* rows;
  int64_t out_stride, x_stride, narrow, width, parts;
};

struct MixArgs {  // mix_streams and weigh_streams make rows of `made` streams of `width` columns from `read` streams
  float* out;
  const float *base, *x, *weights;
  int64_t out_stride, base_stride, x_stride, weights_stride, made, read, width, parts;
  float shift;
};

struct SharesArgs {  // arguments of stream_shares
  float* out;
  const float *x, *base, *factor;
  int64_t out_stride, x_stride, streams, width, rounds;
  float eps;
};

struct LowRankArgs {  // low_rank_down computes middle (rows, ranks) from x; low_rank_up adds its product with middle to out
  float *out, *middle;
  const float *x, *ranks;
  const uint8_t* data;  // a bank of matrices
  const uint16_t *down_scales, *up_scales;  // a scale for each column of each matrix; nullptr for floats
  const int32_t* adapters;
  int64_t out_stride, middle_stride, x_stride, width, most_ranks, panels, panel_bytes, adapters_known, parts;
  int32_t kind;
};

}  // namespace cuda
}  // namespace twostroke
