// sparse_mixer: each row chooses its experts one after the other. Each is weighted against the experts with similar logits.
#include "twostroke/checks.h"
#include "twostroke/ops.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

int64_t best_of(const float* logits, int64_t experts, const bool* taken) {
  int64_t best = 0;
  while (taken[best]) ++best;
  for (int64_t e = best + 1; e < experts; ++e) {
    if (!taken[e] && logits[e] > logits[best]) best = e;
  }
  return best;
}

// The sum of exp(l - most) over the logits that are left and near, in the order of their numbers.
float sum_near(const float* logits, int64_t experts, const bool* taken, float most, float apart) {
  float powers[kMostExperts], total = 0;
  for (int64_t e = 0; e < experts; e += kLanes) {
    const int64_t count = experts - e < kLanes ? experts - e : kLanes;
    store_part(powers + e, count, exp(load_part(logits + e, count, most) - set1(most)));
  }
  for (int64_t e = 0; e < experts; ++e) {
    const float size = logits[e] < 0 ? -logits[e] : logits[e];
    const bool far = (most - logits[e]) / (size > most ? size : most) > apart;
    if (!taken[e] && !far) total += powers[e];
  }
  return total;
}

void mixer_task(const ts_sparse_mixer_args& a, int64_t row) {
  const int64_t experts = width_of(a.logits), count = width_of(a.out) / 2;
  const float* logits = a.logits.data + row * a.logits.stride;
  float *weights = a.out.data + row * a.out.stride, *numbers = weights + count;
  bool taken[kMostExperts] = {};
  bool clean = true;
  for (int64_t e = 0; e < experts; ++e) clean = clean && logits[e] - logits[e] == 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t best = best_of(logits, experts, taken);
    const float total = sum_near(logits, experts, taken, logits[best], static_cast<float>(2 * a.jitter));
    weights[i] = clean ? 1.0f / total : NAN;
    numbers[i] = static_cast<float>(best);
    taken[best] = true;
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_sparse_mixer_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<mixer_task>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
