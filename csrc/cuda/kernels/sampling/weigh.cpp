// Sums of the weights of parts of rows, of those that need them: sample_best finds the peak, sample_weigh adds up. A weight takes many
// operations on doubles, which most chips have few units for: none is made that no sum needs.
// Knows: what is asked of each row. Must not know: how a token is chosen.
#include "best.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(sample_best, SampleArgs) {
  const Likeliest drawn(args, block_index(), kDraw);
  tell_best(args, block_index(), drawn.best);
}

// Keeps the sum of the weights of a part, of those that reach `least`.
TS_DEVICE_INLINE void sum_part(const SampleArgs& args, const Part& at, const float* row, int purpose, const Weights& weights, uint64_t least) {
  constexpr int kAtOnce = 4;
  uint64_t sum = 0;
  for (int i = 0; i < kPartTokens; i += kAtOnce) {
    float logits[kAtOnce];
    const int64_t first = at.first + i * kThreads + thread_index();
    TS_EVERY_LANE
    for (int j = 0; j < kAtOnce; ++j) logits[j] = first + j * kThreads < args.count ? row[first + j * kThreads] : -__builtin_inff();
    TS_EVERY_LANE
    for (int j = 0; j < kAtOnce; ++j) {
      const uint64_t weight = weights.of(logits[j]);  // of -infinity it is 0
      sum += weight >= least ? weight : 0;
    }
  }
  sum = block_sum(sum);
  if (thread_index() == 0) sums_of(args, at.row, purpose)[at.number] = sum;
}

TS_KERNEL(sample_weigh, SampleArgs) {
  const Part at = part_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  const SampledRow& told = args.told[args.first + at.row];
  if (asked.num_top >= 0) sum_part(args, at, raw_of(args, at.row), kTell, raw_weights(args, told), 0);
  const Choice choice(asked, args.count);
  if (choice.some || !is_drawn(asked, told.best)) return;
  const Weights weights = drawn_weights(args, asked, told.best);
  sum_part(args, at, drawn_from(args, at.row), kDraw, weights, choice.share ? 0 : weights.least(asked));
}

}  // namespace cuda
}  // namespace twostroke
