// best_losses and add_losses: what rounding the inputs of a product takes from the largest results of each row. The row's remainders come
// from first_remainders, and the rows of the matrix from embed.
#include "twostroke/cuda/machine/block.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

TS_SHARED(uint32_t, best_listed, 1);

TS_DEVICE_INLINE uint64_t best_key(const float* logits, int64_t i) { return key_of(rank_of(logits[i]), i); }

TS_DEVICE_INLINE uint64_t keys_from(const float* logits, int64_t width, uint64_t floor) {
  uint64_t own = 0;
  TS_ONE_BY_ONE
  for (int64_t i = thread_index(); i < width; i += kThreads) own += best_key(logits, i) >= floor ? 1 : 0;
  return block_sum(own);
}

// Returns a key that `wanted` keys of the row reach, and at most kRoom. The largest keys of the threads are so many candidates.
TS_DEVICE_INLINE uint64_t best_floor(const float* logits, int64_t width, int32_t wanted) {
  uint64_t own = 0;
  TS_ONE_BY_ONE
  for (int64_t i = thread_index(); i < width; i += kThreads) {
    const uint64_t key = best_key(logits, i);
    own = key > own ? key : own;
  }
  put_room(thread_index(), own);
  barrier();
  sort_room(kThreads);
  const uint64_t floor = room_at(wanted - 1);
  if (keys_from(logits, width, floor) <= kRoom) return floor;
  uint64_t found = 0;
  TS_ONE_BY_ONE
  for (int32_t bit = 63; bit >= 0; --bit) {
    const uint64_t trial = found | uint64_t{1} << bit;
    if (keys_from(logits, width, trial) >= static_cast<uint64_t>(wanted)) found = trial;
  }
  return found;
}

// Finds the numbers of a row's largest results, and the rows of the matrix that made them. A block has one row.
TS_KERNEL(best_numbers, BestArgs) {
  float* out = args.out + block_index() * args.out_stride;
  const int32_t thread = thread_index();
  if (args.rounded == 0) {
    if (thread < 2 * args.count) out[thread] = 0.0f;
    return;
  }
  const float* logits = args.logits + block_index() * args.logits_stride;
  const uint64_t floor = best_floor(logits, args.width, args.count);
  if (thread == 0) best_listed[0] = 0;
  barrier();
  TS_ONE_BY_ONE
  for (int64_t i = thread; i < args.width; i += kThreads) {
    const uint64_t key = best_key(logits, i);
    if (key >= floor) put_room(atomic_add(best_listed, 0, 1), key);
  }
  barrier();
  sort_room(static_cast<int32_t>(static_cast<uint32_t>(best_listed[0])));
  if (thread >= args.count) return;
  const int64_t number = number_in(room_at(thread)), own = number - args.first;
  out[args.count + thread] = static_cast<float>(number);
  args.ids[block_index() * args.count + thread] = static_cast<int32_t>(own >= 0 && own < args.rows ? own : 0);
}

// Multiplies the remainder of a row by one of the rows of the matrix. A block has one product.
TS_KERNEL(best_losses, BestArgs) {
  const int64_t row = block_index() / args.count, place = block_index() - row * args.count;
  float* out = args.out + row * args.out_stride;
  const int64_t own = static_cast<int64_t>(out[args.count + place]) - args.first;
  const float *lost = args.lost + row * args.padded, *values = args.values + block_index() * args.padded;
  const float sum = sum_by_lanes(args.padded, [&](int32_t i) { return lost[i]; }, [&](int32_t i, float value, float before) { return fma(value, values[i], before); });
  if (thread_index() == 0) out[place] = own >= 0 && own < args.rows ? sum : 0.0f;
}

TS_KERNEL(add_losses, ts_add_losses_args) {
  float* logits = args.out.data + block_index() * args.out.stride;
  const float* losses = args.losses.data + block_index() * args.losses.stride;
  const int64_t all = width_of(args.losses), width = width_of(args.out);
  for (int64_t i = thread_index(); i < args.count; i += threads()) {
    const float number = losses[args.count + i];
    if (!(number >= 0.0f && number < static_cast<float>(width))) continue;
    for (int64_t part = 0; part < all; part += 2 * args.count)
      if (losses[part + i] != 0.0f) logits[static_cast<int64_t>(number)] += losses[part + i];
  }
}

}  // namespace cuda
}  // namespace twostroke
