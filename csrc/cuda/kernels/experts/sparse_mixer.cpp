// sparse_mixer: the experts that each row chooses one after the other, each weighed against those near it. A block of one thread a row.
// Knows: arithmetic.h. Must not know: experts' matrices.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(int32_t, mixer_taken, kMostChoices);

TS_KERNEL(sparse_mixer, MixerArgs) {
  const float* logits = args.logits + block_index() * args.logits_stride;
  float *weights = args.out + block_index() * args.out_stride, *numbers = weights + args.count;
  bool clean = true;
  for (int64_t e = 0; e < args.experts; ++e) {
    mixer_taken[e] = 0;
    clean = clean && logits[e] - logits[e] == 0.0f;
  }
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t best = largest_left(logits, mixer_taken, args.experts);
    const float most = logits[best];
    float total = 0.0f;  // of the powers of what is left and near, in the order of their numbers
    for (int64_t e = 0; e < args.experts; ++e) {
      const float size = logits[e] < 0.0f ? -logits[e] : logits[e];
      const bool far = (most - logits[e]) / (size > most ? size : most) > args.apart;
      if (!mixer_taken[e] && !far) total += exp(logits[e] - most);
    }
    weights[i] = clean ? 1.0f / total : __builtin_nanf("");
    numbers[i] = static_cast<float>(best);
    mixer_taken[best] = 1;
  }
}

}  // namespace cuda
}  // namespace twostroke
