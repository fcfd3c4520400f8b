// route: the experts that each row chooses, and their weights.
#include "twostroke/rows/activation.h"
#include "twostroke/checks.h"
#include "twostroke/ops.h"
#include "twostroke/rows/softplus.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

enum Scores { kSoftmax = 0, kSigmoidOfEach = 1, kSqrtSoftplus = 2, kSigmoidOfLogit = 3, kScores = 4 };
static_assert(kScores == kScoreKinds, "each kind of scores is made");

// The numbers of the `count` largest choices among those that are not taken, largest first; of equal ones the lower number comes first. NaN
// never makes it take a number twice, because taken numbers are skipped.
void choose(const float* choices, int64_t experts, int64_t count, bool* taken, int32_t* chosen) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t best = 0;
    while (taken[best]) ++best;
    for (int64_t e = best + 1; e < experts; ++e) {
      if (!taken[e] && choices[e] > choices[best]) best = e;
    }
    taken[best] = true;
    chosen[i] = static_cast<int32_t>(best);
  }
}

// The largest of a group's choices, or the sum of its two largest.
float value_of_group(const float* choices, int64_t count, int64_t best) {
  float first = -INFINITY, second = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    if (choices[i] > first) {
      second = first;
      first = choices[i];
    } else if (choices[i] > second) {
      second = choices[i];
    }
  }
  return best == 2 ? first + second : first;
}

// taken: becomes true for the experts of all groups, except the `kept` groups with the largest values.
void close_groups(const ts_route_args& a, const float* choices, int64_t experts, bool* taken) {
  if (a.kept == a.groups) return;
  float values[kMostExperts];
  bool open[kMostExperts] = {};
  int32_t order[kMostExperts];
  const int64_t inside = experts / a.groups;
  for (int64_t g = 0; g < a.groups; ++g) values[g] = value_of_group(choices + g * inside, inside, a.best);
  choose(values, a.groups, a.kept, open, order);
  for (int64_t e = 0; e < experts; ++e) taken[e] = !open[e / inside];
}

template <class Function>
TS_VECTOR_INLINE void each_score(const float* logits, int64_t experts, float* scores, const Function& function) {
  for (int64_t e = 0; e < experts; e += kLanes) {
    const int64_t count = experts - e < kLanes ? experts - e : kLanes;
    store_part(scores + e, count, function(load_part(logits + e, count, 0.0f)));
  }
}

// Returns false where a logit is not finite, because exp is bounded and would hide it.
bool usable(const float* logits, int64_t experts) {
  bool found = true;
  for (int64_t e = 0; e < experts; ++e) found = found && logits[e] - logits[e] == 0;
  return found;
}

void softmax(const float* logits, int64_t experts, float* scores) {
  float largest = logits[0], total = 0;
  for (int64_t e = 1; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
  each_score(logits, experts, scores, [&](Vec x) { return exp(x - set1(largest)); });
  for (int64_t e = 0; e < experts; ++e) total += scores[e];
  for (int64_t e = 0; e < experts; ++e) scores[e] /= total;
}

void scores_of(int64_t kind, const float* logits, int64_t experts, float* scores) {
  if (kind == kSoftmax) return softmax(logits, experts, scores);
  if (kind == kSigmoidOfEach || kind == kSigmoidOfLogit) return each_score(logits, experts, scores, [](Vec x) { return sigmoid(x); });
  each_score(logits, experts, scores, [](Vec x) { return softplus(x); });
  for (int64_t e = 0; e < experts; ++e) scores[e] = sqrtf(scores[e]);
}

void route_task(const ts_route_args& a, int64_t row) {
  const int64_t experts = width_of(a.logits), count = width_of(a.out) / 2;
  const float* logits = a.logits.data + row * a.logits.stride;
  float *weights = a.out.data + row * a.out.stride, *numbers = weights + count;
  float scores[kMostExperts], biased[kMostExperts];
  bool taken[kMostExperts] = {};
  int32_t chosen[kMostExperts];
  scores_of(a.scores, logits, experts, scores);
  const float* unbiased = a.scores == kSigmoidOfLogit ? logits : scores;
  for (int64_t e = 0; a.bias.data != nullptr && e < experts; ++e) biased[e] = unbiased[e] + a.bias.data[e];
  const float* choices = a.bias.data != nullptr ? biased : logits;
  close_groups(a, choices, experts, taken);
  choose(choices, experts, count, taken, chosen);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = scores[chosen[i]];
    numbers[i] = static_cast<float>(chosen[i]);
    sum += weights[i];
  }
  const float least = static_cast<float>(a.least), factor = static_cast<float>(a.factor);
  const float divisor = a.normalised != 0 ? (sum > least ? sum : least) + static_cast<float>(a.added) : 1.0f;
  const bool clean = usable(logits, experts);
  for (int64_t i = 0; i < count; ++i) weights[i] = clean ? weights[i] / divisor * factor : NAN;
  for (int64_t i = 0; a.shares.data != nullptr && i < count; ++i) weights[i] *= a.shares.data[chosen[i]];
}

void token_task(const ts_route_by_token_args& a, int64_t row) {
  const int64_t experts = width_of(a.logits), count = width_of(a.out) / 2;
  const float* logits = a.logits.data + row * a.logits.stride;
  const float* named = a.table.data + a.token_ids.data[row] * count;
  float *weights = a.out.data + row * a.out.stride, *numbers = weights + count;
  float scores[kMostExperts], sum = 0;
  bool taken[kMostExperts] = {};
  scores_of(a.scores, logits, experts, scores);
  for (int64_t i = 0; i < count; ++i) {
    const float whole = rintf(named[i]), most = static_cast<float>(experts - 1);
    int64_t expert = whole > 0 ? static_cast<int64_t>(whole < most ? whole : most) : 0;  // NaN becomes 0
    while (taken[expert]) expert = (expert + 1) % experts;
    taken[expert] = true;
    numbers[i] = static_cast<float>(expert);
    weights[i] = scores[expert];
    sum += weights[i];
  }
  const float divisor = sum + static_cast<float>(a.added), factor = static_cast<float>(a.factor);
  const bool clean = usable(logits, experts);
  for (int64_t i = 0; i < count; ++i) weights[i] = clean ? weights[i] / divisor * factor : NAN;
}

}  // namespace

int32_t run(ts_context* context, const ts_route_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<route_task>(context, a.out.rows, a);
  return TS_OK;
}

int32_t run(ts_context* context, const ts_route_by_token_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<token_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
