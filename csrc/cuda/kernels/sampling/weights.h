// Weights of a row's tokens, and the tokens from which a draw chooses.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

struct Weights {
  const double* series;
  double peak, scale;

  TS_MEMBER_INLINE uint64_t of(float logit) const { return token_weight(logit, peak, scale, series); }
  // How many 64ths of a factor of two the weight of a logit lies below the peak's. A larger logit has no larger step. The last step stands
  // for all after it.
  TS_MEMBER_INLINE int32_t step_of(float logit) const {
    const double below = (peak - static_cast<double>(logit)) * scale * 64.0;
    return below < static_cast<double>(kSteps - 1) ? static_cast<int32_t>(below) : kSteps - 1;
  }
  // The smallest weight that min-p keeps.
  TS_MEMBER_INLINE uint64_t least(const SampleRow& asked) const { return asked.min_p == 0 ? 0 : share_up(asked.min_p, of(static_cast<float>(peak))); }
};

// The weights at temperature 1, before all changes.
TS_DEVICE_INLINE Weights raw_weights(const SampleArgs& args, const SampledRow& told) { return {args.series, told.raw_best, args.scale}; }
TS_DEVICE_INLINE Weights drawn_weights(const SampleArgs& args, const SampleRow& asked, float best) {
  return {args.series, best, asked.scale};
}

// Whether a token is drawn. A row whose largest logit is not finite gives no token.
TS_DEVICE_INLINE bool is_drawn(const SampleRow& asked, float best) { return asked.drawn && best - best == 0.0f; }

// The effect of top-k, if it leaves tokens out, and of top-p.
struct Choice {
  bool some, share;

  TS_MEMBER_INLINE Choice(const SampleRow& asked, int64_t count)
      : some(asked.top_k > 0 && asked.top_k < count), share(asked.top_p < uint64_t{1} << kShareBits) {}
};

// Whether top-p alone chooses; then the sums of weights of sample_weigh are used.
TS_DEVICE_INLINE bool drawn_by_steps(const SampleRow& asked, int64_t count) {
  const Choice choice(asked, count);
  return asked.drawn && !choice.some && choice.share;
}

TS_DEVICE_INLINE uint64_t likely(uint64_t weight, uint64_t least) { return weight >= least ? weight : 0; }

// The share of a sum of weights that top-p keeps.
TS_DEVICE_INLINE uint64_t share_of(const SampleRow& asked, uint64_t sum) {
  const uint64_t share = share_up(asked.top_p, sum);
  return share == 0 ? 1 : share;
}

}  // namespace cuda
}  // namespace twostroke
