// sparse_mixer: each row chooses its experts one after the other. Each is weighted against the experts with similar logits. A warp has one
// row.
#include "choices.h"

namespace twostroke {
namespace cuda {

TS_SHARED(int32_t, mixer_taken, kMostChoices);
TS_SHARED(float, mixer_powers, kMostChoices);

TS_KERNEL(sparse_mixer, ts_sparse_mixer_args) {
  const int64_t experts = width_of(args.logits), count = width_of(args.out) / 2;
  const float apart = static_cast<float>(2 * args.jitter);
  const float* logits = args.logits.data + block_index() * args.logits.stride;
  float *weights = args.out.data + block_index() * args.out.stride, *numbers = weights + count;
  const bool clean = all_finite(logits, experts);
  for (int64_t e = warp_lane(); e < experts; e += kWarp) mixer_taken[e] = 0;
  take_largest(logits, mixer_taken, experts, count, [&](int64_t place, int64_t best) {
    const float most = logits[best];
    for (int64_t e = warp_lane(); e < experts; e += kWarp) {
      const float size = logits[e] < 0.0f ? -logits[e] : logits[e];
      const bool far = (most - logits[e]) / (size > most ? size : most) > apart;
      mixer_powers[e] = mixer_taken[e] || far ? -1.0f : exp(logits[e] - most);
    }
    barrier();
    // the sum of the powers of the experts that are left and near, in the order of their numbers; every thread adds all
    float total = 0.0f;
    for (int64_t e = 0; e < experts; ++e) {
      const float power = mixer_powers[e];
      total = power < 0.0f ? total : total + power;
    }
    barrier();
    if (place % kWarp != warp_lane()) return;
    weights[place] = clean ? 1.0f / total : __builtin_nanf("");
    numbers[place] = static_cast<float>(best);
  });
}

}  // namespace cuda
}  // namespace twostroke
