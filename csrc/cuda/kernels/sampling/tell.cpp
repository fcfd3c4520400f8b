// sample_tell: the sum of the weights of a row before all changes, and its most likely tokens. A block a row.
// Knows: what is asked of each row. Must not know: how a token is chosen.
#include "block.h"
#include "rows.h"

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE void tell_top(SampledRow& told, int32_t place, const float* raw, uint64_t key) {
  told.top_tokens[place] = static_cast<int32_t>(token_in(key));
  told.top_logits[place] = raw[token_in(key)];
}

TS_KERNEL(sample_tell, SampleArgs) {
  const int64_t row = block_index();
  const SampleRow& asked = args.rows[args.first + row];
  SampledRow& told = args.told[args.first + row];
  if (asked.num_top < 0) return;
  uint64_t sum = 0;
  for (int64_t i = thread_index(); i < args.parts; i += kThreads) sum += sums_of(args, row, kTell)[i];
  sum = block_sum(sum);
  if (thread_index() == 0) told.total = sum;
  if (asked.num_top == 0) return;
  const float* raw = raw_of(args, row);
  const int32_t wanted = asked.num_top < args.count ? asked.num_top : static_cast<int32_t>(args.count);
  SampleState& state = args.states[row];
  if (state.listed[kTell] <= kMostListed) {
    sort_room(list_of(args, row, kTell), static_cast<int32_t>(state.listed[kTell]));
    if (thread_index() < wanted) tell_top(told, thread_index(), raw, room[thread_index()]);
    return;
  }
  const auto key = [&](int64_t i) { return key_of(rank_of(raw[i]), i); };
  const uint64_t last = find_key(args.count, static_cast<uint64_t>(wanted), key, [](int64_t) { return uint64_t{1}; });
  const uint32_t before = state.listed[kTell];
  barrier();
  for (int64_t i = thread_index(); i < args.count; i += kThreads)
    if (key(i) >= last) tell_top(told, static_cast<int32_t>(atomic_add(&state.listed[kTell], 1) - before), raw, key(i));
}

}  // namespace cuda
}  // namespace twostroke
