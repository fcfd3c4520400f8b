// Arguments of the kernels for sampling; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/rows/sample_row.h"
#include "twostroke/rows/token_weight.h"

namespace twostroke {
namespace cuda {

constexpr int kPartTokens = 16;  // logits of a row that one thread reads; kThreads * kPartTokens logits are a part
constexpr int kPartGroups = 64;  // threads of a part that also keep the likeliest token of their neighbours
constexpr int kMostListed = 2048;  // the most likely tokens of a row that are examined one by one
constexpr int kSteps = 2048;  // steps by which weights fall from the peak: see step_of

// Why a kernel reads a row: it draws a token (kDraw), or it returns log probabilities of the row before all changes (kTell).
enum Purpose { kDraw = 0, kTell = 1, kPurposes = 2 };

// told[first + r] is the result for logits[r]. The other pointers are scratch memory for each row:
// adjusted (count,) has the changed logits. groups (2, parts, kPartGroups), by purpose, has the keys of the likeliest tokens before changes
// (kTell) and after them (kDraw; the only one where nothing changes). sums (2, parts), by purpose, has sums of weights.
// Rows that draw with top-p and without top-k also have sums of weights by step (kSteps,), and the key of the last token that top-p keeps.
struct SampleArgs {
  const float* logits;
  const SampleRow* rows;
  SampledRow* told;
  float* adjusted;
  uint64_t *groups, *sums, *steps, *cuts;
  int64_t stride, count, first, parts;
  double scale, series[kSeriesTerms];  // scale: the factor for temperature 1
};

}  // namespace cuda
}  // namespace twostroke
