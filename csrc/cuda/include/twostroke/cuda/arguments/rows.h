// Arguments of kernels for experts and adapters; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/ops.h"

namespace twostroke {
namespace cuda {

// The operands of route_by_token, which chooses by a table in place of the scores.
struct TokenRouteArgs : ts_route_args {
  const int32_t* token_ids;
  const float* table;
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

struct PairArgs {  // gather_pairs copies rows of x to (pairs, width); add_pairs adds (pairs, width) to rows of out
  float* out;
  const float *x, *weights;  // weights: NULL where all are 1
  int64_t out_stride, x_stride, chosen, width;
  const int32_t* places;  // for add_pairs: the place of each pair's row of x; NULL where they are in order
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
