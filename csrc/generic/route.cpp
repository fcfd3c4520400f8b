// route: the experts that each row chooses, and their weights.
// Knows: rows, the thread pool. Must not know: experts' matrices.
#include "twostroke/context.h"
#include "twostroke/ops.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

// Numbers of the `count` largest logits, largest first; of equal ones the lower number comes first. NaN is no reason to take a number
// twice: a number that was taken is not looked at again.
void choose(const float* logits, int64_t experts, int64_t count, int32_t* chosen) {
  bool taken[kMostExperts] = {};
  for (int64_t i = 0; i < count; ++i) {
    int64_t best = 0;
    while (taken[best]) ++best;
    for (int64_t e = best + 1; e < experts; ++e) {
      if (!taken[e] && logits[e] > logits[best]) best = e;
    }
    taken[best] = true;
    chosen[i] = static_cast<int32_t>(best);
  }
}

// powers[e] = exp(logits[e] - largest). Returns their sum; NaN where a logit is NaN or infinity (exp is bounded and would hide it).
float softmax_terms(const float* logits, int64_t experts, float* powers) {
  float largest = logits[0], total = 0;
  for (int64_t e = 1; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
  for (int64_t e = 0; e < experts; e += kLanes) {
    const int64_t count = experts - e < kLanes ? experts - e : kLanes;
    store_part(powers + e, count, exp(load_part(logits + e, count, largest) - set1(largest)));
  }
  for (int64_t e = 0; e < experts; ++e) total += logits[e] < INFINITY ? powers[e] : NAN;
  return total;
}

void route_task(void* arg, int64_t row, int32_t) {
  const ts_route_args& a = *static_cast<const ts_route_args*>(arg);
  const int64_t experts = width_of(a.logits), count = width_of(a.out) / 2;
  const float* logits = a.logits.data + row * a.logits.stride;
  float *weights = a.out.data + row * a.out.stride, *numbers = weights + count;
  float powers[kMostExperts];
  int32_t chosen[kMostExperts];
  choose(logits, experts, count, chosen);
  const float total = softmax_terms(logits, experts, powers);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = powers[chosen[i]] / total;
    numbers[i] = static_cast<float>(chosen[i]);
    sum += weights[i];
  }
  if (a.normalised == 0) return;
  for (int64_t i = 0; i < count; ++i) weights[i] /= sum;
}

}  // namespace

int32_t run(ts_context* context, const ts_route_args& a) {
  const int64_t experts = width_of(a.logits), width = width_of(a.out);
  if (a.out.rows != a.logits.rows || width % 2 != 0 || width < 2 || width / 2 > experts || experts > kMostExperts) return TS_BAD_SHAPE;
  ts_parallel(context, a.out.rows, route_task, const_cast<ts_route_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
