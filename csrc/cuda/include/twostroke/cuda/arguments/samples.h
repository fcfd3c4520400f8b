// Arguments of the kernels for sampling; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/rows/sample_row.h"
#include "twostroke/token_weight.h"

namespace twostroke {
namespace cuda {

constexpr int kPartTokens = 16;      // of a row of logits that a thread has: kThreads * kPartTokens are a part
constexpr int kPartGroups = 64;      // threads of a part that keep the likeliest token of their neighbours too
constexpr int kMostListed = 2048;    // likely tokens of a row that are looked at alone
constexpr int kSteps = 2048;         // by which weights fall from the peak: see step_of

// Why a kernel reads a row: it draws a token (kDraw), or it returns log probabilities of the row before all changes (kTell).
enum Purpose { kDraw = 0, kTell = 1, kPurposes = 2 };

// told[first + r]: the result for logits[r]. Scratch memory, of each row: adjusted (count,); by purpose groups (2, parts, kPartGroups):
// keys of the likeliest tokens of the row before changes (kTell) and after them (kDraw; alone where nothing changes); and sums (2, parts)
// of weights. Of rows that draw with top-p and without top-k: sums of weights by step (kSteps,), and the key of the last token that top-p
// keeps.
struct SampleArgs {
  const float* logits;
  const SampleRow* rows;
  SampledRow* told;
  float* adjusted;
  uint64_t *groups, *sums, *steps, *cuts;
  int64_t stride, count, first, parts;
  double scale, series[kSeriesTerms];  // scale: of temperature 1
};

}  // namespace cuda
}  // namespace twostroke
