// Weights of a row's tokens, and which of them a draw is among.
// Knows: SampleRow. Must not know: in which order tokens are looked at.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/simt.h"

namespace twostroke {
namespace cuda {

struct Weights {
  const double* series;
  double peak, scale;

  TS_MEMBER_INLINE uint64_t of(float logit) const { return token_weight(logit, peak, scale, series); }
  // What min-p asks of a weight.
  TS_MEMBER_INLINE uint64_t least(const SampleRow& asked) const { return asked.min_p == 0 ? 0 : share_up(asked.min_p, of(static_cast<float>(peak))); }
};

// At temperature 1, before all changes.
TS_DEVICE_INLINE Weights raw_weights(const SampleArgs& args, const SampledRow& told) { return {args.series, told.raw_best, args.scale}; }
TS_DEVICE_INLINE Weights drawn_weights(const SampleArgs& args, const SampleRow& asked, float best) {
  return {args.series, best, asked.scale};
}

// A row whose largest logit is not finite gives no token.
TS_DEVICE_INLINE bool is_drawn(const SampleRow& asked, float best) { return asked.drawn && best - best == 0.0f; }

// top-k, if it leaves tokens out, and top-p.
struct Choice {
  bool some, share;

  TS_MEMBER_INLINE Choice(const SampleRow& asked, int64_t count)
      : some(asked.top_k > 0 && asked.top_k < count), share(asked.top_p < uint64_t{1} << kShareBits) {}
};

}  // namespace cuda
}  // namespace twostroke
