// sample_weigh: sums of weights of the parts of rows, where they are needed, and lists of the tokens that are likely enough. A weight
// takes many operations on doubles, which most chips have few units for: none is made that no sum needs.
// Knows: what is asked of each row. Must not know: how a token is chosen.
#include "block.h"
#include "rows.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

// Lists the tokens of a part whose rank reaches the floor, in any order.
TS_DEVICE_INLINE void list_part(const SampleArgs& args, const Part& at, const PartTokens& found, int purpose) {
  SampleState& state = args.states[at.row];
  const uint32_t floor = state.floors[purpose];
  uint64_t* list = list_of(args, at.row, purpose);
  TS_EVERY_LANE
  for (int i = 0; i < kPartTokens; ++i) {
    if (found.ranks[i] == 0 || found.ranks[i] < floor) continue;
    const uint32_t place = atomic_add(&state.listed[purpose], 1);
    if (place < kMostListed) list[place] = key_of(found.ranks[i], found.token(i));
  }
}

// Keeps the sum of the weights of a part, of those that reach `least`.
TS_DEVICE_INLINE void sum_part(const SampleArgs& args, const Part& at, const PartTokens& found, int purpose, const Weights& weights, uint64_t least) {
  uint64_t sum = 0;
  TS_EVERY_LANE
  for (int i = 0; i < kPartTokens; ++i) {
    if (found.ranks[i] == 0) continue;
    const uint64_t weight = weights.of(found.logits[i]);
    sum += weight >= least ? weight : 0;
  }
  sum = block_sum(sum);
  if (thread_index() == 0) sums_of(args, at.row, purpose)[at.number] = sum;
}

TS_KERNEL(sample_weigh, SampleArgs) {
  const Part at = part_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  const SampledRow& told = args.told[args.first + at.row];
  if (asked.num_top >= 0) {
    const PartTokens found(raw_of(args, at.row), at.first, args.count);
    if (asked.num_top > 0) list_part(args, at, found, kTell);
    sum_part(args, at, found, kTell, raw_weights(args, told), 0);
  }
  if (!is_drawn(asked, told)) return;
  const Choice choice(asked, args.count);
  const PartTokens found(drawn_from(args, at.row), at.first, args.count);
  if (choice.listed()) list_part(args, at, found, kDraw);
  const Weights weights = drawn_weights(args, asked, told);
  if (!choice.some) sum_part(args, at, found, kDraw, weights, choice.share ? 0 : weights.least(asked));
}

}  // namespace cuda
}  // namespace twostroke
