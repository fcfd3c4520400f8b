// sample_tell: the sum of the weights of a row before all changes, and its most likely tokens. A block has one row.
#include "best.h"
#include "twostroke/cuda/machine/search.h"

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE void tell_top(SampledRow& told, int32_t place, const float* raw, uint64_t key) {
  told.top_tokens[place] = static_cast<int32_t>(number_in(key));
  told.top_logits[place] = raw[number_in(key)];
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
  const Likeliest likeliest(args, row, raw_groups(args, row));
  const uint32_t found = list_wanted(likeliest, raw, args.count, static_cast<uint64_t>(wanted), 1);
  if (found <= kMostListed) {
    sort_room(static_cast<int32_t>(found));
    if (thread_index() < wanted) tell_top(told, thread_index(), raw, room_at(thread_index()));
    return;
  }
  const uint64_t last = find_key(raw, args.count, static_cast<uint64_t>(wanted), rank_of, [](float) { return uint64_t{1}; });
  if (thread_index() == 0) listed[0] = 0;
  barrier();
  over_row(raw, args.count, [&](int64_t token, float logit) {
    const uint64_t key = key_of(rank_of(logit), token);
    if (key >= last) tell_top(told, static_cast<int32_t>(atomic_add(listed, 0, 1)), raw, key);
  });
}

}  // namespace cuda
}  // namespace twostroke
