// SampleRow: the input of a device for one row of logits that gives a token. SampledRow: its result. src/twostroke/runner/sampling/device_rows.py
// defines the same layouts a second time; ts_cuda_sample refuses other sizes.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

constexpr int32_t kMostTop = 20;

// A list of `count` entries. It begins `at` bytes after the first row.
struct SampleList {
  int32_t at, count;
};

struct LoweredToken {
  int32_t token;
  float by;
};

// The input for one row. First, tokens that were seen are divided or multiplied by `repetition`. Then logits are lowered, and then others
// are raised. At last tokens are banned: those of the list, and those without a bit in the mask.
// drawn: 0 for the likeliest token. draw, top_p, min_p: whole numbers of 2^-53; a top_p of 2^53 keeps all tokens. top_k: 0 keeps all
// tokens. num_top: the number of most likely tokens that are returned with their raw logits. If it is -1 there are none, and the sum of raw
// weights is not computed.
// given: 0, or a token's number plus 1. If it is 0, a token is drawn, and its raw logit is returned. Above 0 (rows of a prompt) no token is
// drawn, and the raw logit of token given - 1 is returned.
struct SampleRow {
  uint64_t draw, top_p, min_p;
  double scale;
  SampleList seen, lowered, raised, banned, mask;
  float repetition;
  int32_t changed, drawn, top_k, num_top, given;
};

// best: the largest logit after all changes, or NaN where there is one; token: the chosen token; raw: its logit before changes. raw_best,
// total: the largest raw logit and the sum of raw weights, where num_top is not -1. top: the most likely tokens, in no order.
struct SampledRow {
  uint64_t total;
  int32_t token;
  float best, raw, raw_best;
  int32_t top_tokens[kMostTop];
  float top_logits[kMostTop];
};

}  // namespace cuda
}  // namespace twostroke
