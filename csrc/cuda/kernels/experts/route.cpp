// route and route_by_token: the experts of each row, and their weights. A block a row: its threads make the scores, the first one
// chooses, in the order of csrc/generic/products/route.cpp.
// Knows: arithmetic.h. Must not know: experts' matrices.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, route_scores, kMostChoices);
TS_SHARED(float, route_choices, kMostChoices);
TS_SHARED(int32_t, route_taken, kMostChoices);
TS_SHARED(float, group_values, kMostChoices);
TS_SHARED(int32_t, group_taken, kMostChoices);
TS_SHARED(float, route_total, 1);

enum RouteScores { kSoftmaxScores = 0, kSigmoidScores = 1 };  // else the root of softplus

// The number of the largest that is not taken; of equal ones the lowest.
template <class Values, class Taken>
TS_DEVICE_INLINE int64_t largest_left(Values& values, Taken& taken, int64_t count) {
  int64_t best = 0;
  while (taken[best]) ++best;
  for (int64_t e = best + 1; e < count; ++e)
    if (!taken[e] && values[e] > values[best]) best = e;
  return best;
}

// The largest of a group's choices, or the sum of its two largest.
TS_DEVICE_INLINE float value_of_group(int64_t first, int64_t count, int64_t best) {
  float most = -__builtin_inff(), second = -__builtin_inff();
  for (int64_t i = 0; i < count; ++i) {
    const float choice = route_choices[first + i];
    if (choice > most) {
      second = most;
      most = choice;
    } else if (choice > second) {
      second = choice;
    }
  }
  return best == 2 ? most + second : most;
}

TS_DEVICE_INLINE float score_of_logit(int64_t kind, float logit, float largest) {
  if (kind == kSoftmaxScores) return exp(logit - largest);
  return kind == kSigmoidScores ? sigmoid(logit) : __builtin_sqrtf(softplus(logit));
}

// By all threads of the block.
TS_DEVICE_INLINE void make_scores(const RouteArgs& args, const float* logits) {
  const int32_t thread = thread_index();
  float largest = logits[0];
  for (int64_t e = 1; e < args.experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
  for (int64_t e = thread; e < args.experts; e += threads()) route_scores[e] = score_of_logit(args.scores, logits[e], largest);
  barrier();
  if (thread == 0) {
    float total = 0.0f;
    for (int64_t e = 0; e < args.experts; ++e) total += route_scores[e];
    route_total[0] = total;
  }
  barrier();
  for (int64_t e = thread; e < args.experts; e += threads()) {
    const float score = args.scores == kSoftmaxScores ? route_scores[e] / route_total[0] : route_scores[e];
    route_scores[e] = score;
    route_choices[e] = args.bias != nullptr ? score + args.bias[e] : logits[e];
    route_taken[e] = 0;
  }
  barrier();
}

// Takes the experts of all groups but the `kept` ones that count most.
TS_DEVICE_INLINE void close_groups(const RouteArgs& args) {
  const int64_t inside = args.experts / args.groups;
  if (args.kept == args.groups) return;
  for (int64_t g = 0; g < args.groups; ++g) {
    group_values[g] = value_of_group(g * inside, inside, args.best);
    group_taken[g] = 0;
  }
  for (int64_t i = 0; i < args.kept; ++i) group_taken[largest_left(group_values, group_taken, args.groups)] = 1;
  for (int64_t e = 0; e < args.experts; ++e) route_taken[e] = 1 - group_taken[e / inside];
}

// Takes an expert as the row's next one, and adds its score to `sum`.
TS_DEVICE_INLINE void take(float* weights, float* numbers, int64_t place, int64_t expert, float* sum) {
  route_taken[expert] = 1;
  weights[place] = route_scores[expert];
  numbers[place] = static_cast<float>(expert);
  *sum += weights[place];
}

// Scores of the chosen experts, whose sum is given, become weights.
TS_DEVICE_INLINE void weigh(const RouteArgs& args, const float* logits, float* weights, const float* numbers, float sum) {
  bool clean = true;  // exp is bounded and would hide a logit that is not finite
  for (int64_t e = 0; e < args.experts; ++e) clean = clean && logits[e] - logits[e] == 0.0f;
  const float divisor = args.normalised != 0 ? (sum > args.least ? sum : args.least) + args.added : 1.0f;
  for (int64_t i = 0; i < args.count; ++i) {
    const float weight = clean ? weights[i] / divisor * args.factor : __builtin_nanf("");
    weights[i] = args.shares == nullptr ? weight : weight * args.shares[static_cast<int64_t>(numbers[i])];
  }
}

TS_KERNEL(route, RouteArgs) {
  const float* logits = args.logits + block_index() * args.logits_stride;
  make_scores(args, logits);
  if (thread_index() != 0) return;
  close_groups(args);
  float *weights = args.out + block_index() * args.out_stride, *numbers = weights + args.count, sum = 0.0f;
  for (int64_t i = 0; i < args.count; ++i) take(weights, numbers, i, largest_left(route_choices, route_taken, args.experts), &sum);
  weigh(args, logits, weights, numbers, sum);
}

// The experts that a table names for the row's token; behind one that is taken, the next that is not.
TS_KERNEL(route_by_token, RouteArgs) {
  const float* logits = args.logits + block_index() * args.logits_stride;
  make_scores(args, logits);
  if (thread_index() != 0) return;
  const float *named = args.table + args.token_ids[block_index()] * args.count, most = static_cast<float>(args.experts - 1);
  float *weights = args.out + block_index() * args.out_stride, *numbers = weights + args.count, sum = 0.0f;
  for (int64_t i = 0; i < args.count; ++i) {
    const float whole = __builtin_rintf(named[i]);
    int64_t expert = whole > 0.0f ? static_cast<int64_t>(whole < most ? whole : most) : 0;  // NaN is 0
    while (route_taken[expert]) expert = (expert + 1) % args.experts;
    take(weights, numbers, i, expert, &sum);
  }
  weigh(args, logits, weights, numbers, sum);
}

}  // namespace cuda
}  // namespace twostroke
