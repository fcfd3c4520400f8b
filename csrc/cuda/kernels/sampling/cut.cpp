// sample_cut: finds the last token that top-p keeps, where no top-k leaves tokens out. A block has one row. The sums of weights by step
// tell in which step this token lies; then the tokens of that step are sorted.
#include "rows.h"
#include "twostroke/cuda/machine/search.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

TS_SHARED(uint32_t, step_tokens, 1);

// Puts the keys of a step's tokens into `room`. Returns how many there are, even where they do not fit.
TS_DEVICE_INLINE uint32_t list_step(const float* logits, int64_t count, const Weights& weights, int32_t step) {
  if (thread_index() == 0) step_tokens[0] = 0;
  barrier();
  over_row(logits, count, [&](int64_t token, float logit) {
    if (weights.step_of(logit) != step) return;
    const uint32_t place = atomic_add(step_tokens, 0, 1);
    if (place < kRoom) put_room(place, key_of(rank_of(logit), token));
  });
  barrier();
  return step_tokens[0];
}

TS_KERNEL(sample_cut, SampleArgs) {
  const int64_t row = block_index();
  const SampleRow& asked = args.rows[args.first + row];
  const SampledRow& told = args.told[args.first + row];
  if (!drawn_by_steps(asked, args.count) || !is_drawn(asked, told.best)) return;
  const Weights weights = drawn_weights(args, asked, told.best);
  const float* logits = drawn_from(args, row);
  const uint64_t* sums = steps_of(args, row);
  uint64_t own = 0;
  for (int i = thread_index(); i < kSteps; i += kThreads) own += sums[i];
  const uint64_t share = share_of(asked, block_sum(own));
  const Reached step = reach(kSteps, share, [&](int64_t i) { return sums[i]; });
  const uint32_t found = list_step(logits, args.count, weights, static_cast<int32_t>(step.place));
  uint64_t last = 0;
  if (found <= kRoom) {
    sort_room(static_cast<int32_t>(found));
    last = room_at(reach(found, step.left, [&](int64_t i) { return weights.of(logit_in(room_at(i))); }).place);
  } else {
    last = find_key(logits, args.count, share, rank_of, [&](float logit) { return weights.of(logit); });
  }
  if (thread_index() == 0) args.cuts[row] = last;
}

}  // namespace cuda
}  // namespace twostroke
