// Arguments of kernels for experts, adapters, orders of columns, streams and places; see arguments.h.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

struct RouteArgs {  // route, route_by_token
  float* out;
  const float *logits, *bias, *shares;  // bias, shares: NULL for none
  int64_t out_stride, logits_stride, experts, count, normalised, scores, groups, kept, best;
  float least, added, factor;
  const int32_t* token_ids;  // these two of route_by_token
  const float* table;
};

struct MixerArgs {  // sparse_mixer
  float* out;
  const float* logits;
  int64_t out_stride, logits_stride, experts, count;
  float apart;
};

// Pairs of a row and an expert that it chose, in the order of the experts' numbers: row r has pairs r * chosen .. (r + 1) * chosen. idle: how
// many numbers after those of the experts add nothing: their pairs weigh 0 and have the matrices of the expert before them.
struct ChoiceArgs {  // order_choices
  const float* routes;
  int32_t* matrices;
  float* weights;
  int64_t routes_stride, rows, chosen, experts, idle;
};

struct NumberArgs {  // choice_numbers: a row's numbers as whole ones, in the order of its choices; 0 for what is no matrix'
  const float* routes;
  int32_t* matrices;
  int64_t routes_stride, rows, chosen, experts;
};

struct IdleArgs {  // idle_share
  float* out;
  const float* routes;
  int64_t out_stride, routes_stride, rows, chosen, experts;
};

struct PairArgs {  // gather_pairs: (pairs, width) of x's rows; add_pairs: rows of out of (pairs, width)
  float* out;
  const float *x, *weights;  // weights: NULL for ones
  int64_t out_stride, x_stride, chosen, width, parts;
  const int32_t* places;  // of add_pairs: where each pair's row of x is; NULL where they follow each other
};

struct TakeArgs {  // take_columns: `width` of `from` columns
  float* out;
  const float *x, *order;
  int64_t out_stride, x_stride, width, from, parts;
};

struct PlaceScoreArgs {  // place_scores: x (rows, heads, dim) by table (heads, dim, places)
  float* out;
  const float *x, *table;
  int64_t out_stride, x_stride, rows, heads, dim, places, parts;
};

struct GivenArgs {  // replace_rows
  float* out;
  const float *x, *given;
  const int32_t* marks;
  int64_t out_stride, x_stride, given_stride, width, parts;
  int32_t added;
};

struct JoinArgs {  // join_rows: rows of `width`, of rows of `narrow`
  float* out;
  const float* x;
  const int32_t* rows;
  int64_t out_stride, x_stride, narrow, width, parts;
};

struct MixArgs {  // mix_streams, weigh_streams: rows of `made` streams of `width`, of `read` others
  float* out;
  const float *base, *x, *weights;
  int64_t out_stride, base_stride, x_stride, weights_stride, made, read, width, parts;
  float shift;
};

struct SharesArgs {  // stream_shares
  float* out;
  const float *x, *base, *factor;
  int64_t out_stride, x_stride, streams, width, rounds;
  float eps;
};

struct LowRankArgs {  // low_rank_down: middle (rows, ranks) of x; low_rank_up: out += of middle
  float *out, *middle;
  const float *x, *ranks;
  const uint8_t* data;  // a bank of matrices
  const uint16_t *down_scales, *up_scales;  // a column's of each matrix; nullptr for floats
  const int32_t* adapters;
  int64_t out_stride, middle_stride, x_stride, width, most_ranks, panels, panel_bytes, adapters_known, parts;
  int32_t kind;
};

}  // namespace cuda
}  // namespace twostroke
