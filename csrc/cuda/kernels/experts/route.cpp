// route and route_by_token: the experts of each row and their weights, in the order of csrc/generic/products/route.cpp. A block has one
// row: all its threads compute the scores, and its first warp chooses.
#include "choices.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, route_scores, kMostChoices);
TS_SHARED(float, route_choices, kMostChoices);
TS_SHARED(int32_t, route_taken, kMostChoices);
TS_SHARED(float, group_values, kMostChoices);
TS_SHARED(int32_t, group_taken, kMostChoices);
TS_SHARED(float, route_total, 1);

// Any other number means a sigmoid, with a choice by logits.
enum RouteScores { kSoftmaxScores = 0, kSigmoidScores = 1, kRootScores = 2 };

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
  return kind == kRootScores ? __builtin_sqrtf(softplus(logit)) : sigmoid(logit);
}

// All threads of the block call it.
TS_DEVICE_INLINE void make_scores(const ts_route_args& args, const float* logits) {
  const int64_t experts = width_of(args.logits);
  const int32_t thread = thread_index();
  const float largest = args.scores == kSoftmaxScores ? first_largest(logits, experts) : 0.0f;
  for (int64_t e = thread; e < experts; e += threads()) route_scores[e] = score_of_logit(args.scores, logits[e], largest);
  barrier();
  float total = 0.0f;  // every thread adds all numbers, in order
  if (args.scores == kSoftmaxScores) {
    _Pragma("clang loop unroll_count(16)")
    for (int64_t e = 0; e < experts; ++e) total += route_scores[e];
  }
  barrier();
  for (int64_t e = thread; e < experts; e += threads()) {
    const float score = args.scores == kSoftmaxScores ? route_scores[e] / total : route_scores[e];
    route_scores[e] = score;
    const float unbiased = args.scores > kRootScores ? logits[e] : score;
    route_choices[e] = args.bias.data != nullptr ? unbiased + args.bias.data[e] : logits[e];
    route_taken[e] = 0;
  }
  barrier();
}

// Takes the experts of all groups, except those of the `kept` groups with the largest values. All threads of the block call it.
TS_DEVICE_INLINE void close_groups(const ts_route_args& args) {
  const int64_t experts = width_of(args.logits), inside = experts / args.groups;
  if (args.kept == args.groups) return;
  for (int64_t g = thread_index(); g < args.groups; g += threads()) {
    group_values[g] = value_of_group(g * inside, inside, args.best);
    group_taken[g] = 0;
  }
  barrier();
  if (warp_index() == 0) take_largest(group_values, group_taken, args.groups, args.kept, [](int64_t, int64_t) {});
  barrier();
  for (int64_t e = thread_index(); e < experts; e += threads()) route_taken[e] = 1 - group_taken[e / inside];
  barrier();
}

// Turns the scores of the chosen experts, whose sum is given, into weights. Each thread of a warp changes only the numbers that it wrote.
TS_DEVICE_INLINE void weigh(const ts_route_args& args, const float* logits, float* weights, const float* numbers, float sum) {
  const int64_t count = width_of(args.out) / 2;
  const float least = static_cast<float>(args.least), factor = static_cast<float>(args.factor);
  const bool clean = all_finite(logits, width_of(args.logits));  // exp is bounded, so it would hide a logit that is not finite
  const float divisor = args.normalised != 0 ? (sum > least ? sum : least) + static_cast<float>(args.added) : 1.0f;
  for (int64_t i = warp_lane(); i < count; i += kWarp) {
    const float weight = clean ? weights[i] / divisor * factor : __builtin_nanf("");
    weights[i] = args.shares.data == nullptr ? weight : weight * args.shares.data[static_cast<int64_t>(numbers[i])];
  }
}

TS_KERNEL(route, ts_route_args) {
  const int64_t count = width_of(args.out) / 2;
  const float* logits = args.logits.data + block_index() * args.logits.stride;
  make_scores(args, logits);
  close_groups(args);
  if (warp_index() != 0) return;
  float *weights = args.out.data + block_index() * args.out.stride, *numbers = weights + count, sum = 0.0f;
  take_largest(route_choices, route_taken, width_of(args.logits), count, [&](int64_t place, int64_t expert) {
    const float score = route_scores[expert];
    sum += score;
    if (place % kWarp != warp_lane()) return;
    weights[place] = score;
    numbers[place] = static_cast<float>(expert);
  });
  weigh(args, logits, weights, numbers, sum);
}

// Chooses the experts that a table lists for the row's token. Where one is taken already, the next free one is chosen.
TS_KERNEL(route_by_token, TokenRouteArgs) {
  const int64_t experts = width_of(args.logits), count = width_of(args.out) / 2;
  const float* logits = args.logits.data + block_index() * args.logits.stride;
  make_scores(args, logits);
  float *weights = args.out.data + block_index() * args.out.stride, *numbers = weights + count, sum = 0.0f;
  if (thread_index() == 0) {
    const float *named = args.table + args.token_ids[block_index()] * count, most = static_cast<float>(experts - 1);
    for (int64_t i = 0; i < count; ++i) {
      const float whole = __builtin_rintf(named[i]);
      int64_t expert = whole > 0.0f ? static_cast<int64_t>(whole < most ? whole : most) : 0;  // NaN becomes 0
      while (route_taken[expert]) expert = (expert + 1) % experts;
      route_taken[expert] = 1;
      weights[i] = route_scores[expert];
      numbers[i] = static_cast<float>(expert);
      sum += weights[i];
    }
    route_total[0] = sum;
  }
  barrier();
  if (warp_index() == 0) weigh(args, logits, weights, numbers, route_total[0]);
}

}  // namespace cuda
}  // namespace twostroke
