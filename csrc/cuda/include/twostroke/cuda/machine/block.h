// Reductions over all kThreads threads of a block. The sums are of whole numbers, so the order in which threads add does not matter.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/machine/order.h"

namespace twostroke {
namespace cuda {

constexpr int kBlockWarps = kThreads / kWarp;

TS_SHARED(uint64_t, of_warps, kBlockWarps);

// Joins the values of all warps by `join`, and gives the result to all threads.
template <class Join>
TS_DEVICE_INLINE uint64_t join_warps(uint64_t of_warp, Join join) {
  barrier();  // after this, all threads have read the earlier contents
  if (warp_lane() == 0) of_warps[warp_index()] = of_warp;
  barrier();
  uint64_t joined = of_warps[0];
  for (int warp = 1; warp < kBlockWarps; ++warp) joined = join(joined, of_warps[warp]);
  return joined;
}

// The sum, or the largest, of the numbers of all threads.
TS_DEVICE_INLINE uint64_t block_sum(uint64_t own) {
  return join_warps(warp_sum(own), [](uint64_t a, uint64_t b) { return a + b; });
}
TS_DEVICE_INLINE uint64_t block_most(uint64_t own) {
  return join_warps(warp_most(own), [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

// The sum of the numbers of the threads before this one, and of its own.
TS_DEVICE_INLINE uint64_t block_sum_up_to(uint64_t own) {
  const int32_t lane = warp_lane();
  for (int32_t back = 1; back < kWarp; back *= 2) {
    const uint64_t other = shuffle64(own, lane >= back ? lane - back : lane);
    own += lane >= back ? other : 0;
  }
  barrier();
  if (lane == kWarp - 1) of_warps[warp_index()] = own;
  barrier();
  for (int warp = 0; warp < warp_index(); ++warp) own += of_warps[warp];
  return own;
}

TS_SHARED(uint64_t, found_place, 2);

// Finds the place among `count` at which the running sum of the measure first reaches `target`, and the part of the target that is left at
// this place. Every thread gets both. `target` is in the range from 1 to the whole sum.
struct Reached {
  int64_t place;
  uint64_t left;
};

template <class Measure>
TS_DEVICE_INLINE Reached reach(int64_t count, uint64_t target, Measure measure) {
  const int64_t each = (count + kThreads - 1) / kThreads, first = thread_index() * each;
  const int64_t end = first + each < count ? first + each : count;
  uint64_t sum = 0;
  TS_ONE_BY_ONE
  for (int64_t i = first; i < end; ++i) sum += measure(i);
  const uint64_t up_to = block_sum_up_to(sum);
  if (up_to >= target && up_to - sum < target) {
    uint64_t left = target - (up_to - sum);
    int64_t at = first;
    TS_ONE_BY_ONE
    for (uint64_t size = measure(at); size < left; size = measure(at)) {
      left -= size;
      ++at;
    }
    found_place[0] = static_cast<uint64_t>(at);
    found_place[1] = left;
  }
  barrier();
  return {static_cast<int64_t>(static_cast<uint64_t>(found_place[0])), found_place[1]};
}

constexpr int kRoom = 2048;  // the room, in numbers of 64 bits
TS_SHARED(uint32_t, room, 2 * kRoom);  // the upper halves of the numbers, then the lower halves

TS_DEVICE_INLINE uint64_t room_at(int64_t place) {
  const uint32_t high = room[place], low = room[kRoom + place];
  return static_cast<uint64_t>(high) << 32 | low;
}
TS_DEVICE_INLINE void put_room(int64_t place, uint64_t number) {
  room[place] = static_cast<uint32_t>(number >> 32);
  room[kRoom + place] = static_cast<uint32_t>(number);
}
// Many threads may add to one place. Up to the next barrier, no thread reads or writes it in another way.
TS_DEVICE_INLINE void add_to_room(int64_t place, uint64_t number) {
  const uint32_t low = static_cast<uint32_t>(number), before = atomic_add(room, kRoom + place, low);
  const uint32_t high = static_cast<uint32_t>(number >> 32) + (before + low < before ? 1 : 0);
  if (high != 0) atomic_add(room, place, high);
}

// Sorts the first `count` numbers of `room`, which are above 0, into falling order.
TS_DEVICE_INLINE void sort_room(int32_t count) {
  int32_t size = kWarp;
  while (size < count) size *= 2;
  TS_ONE_BY_ONE
  for (int32_t i = count + thread_index(); i < size; i += kThreads) put_room(i, 0);
  barrier();
  for (int32_t run = 2; run <= size; run *= 2) {
    for (int32_t step = run / 2; step > 0; step /= 2) {
      TS_ONE_BY_ONE
      for (int32_t pair = thread_index(); pair < size / 2; pair += kThreads) {
        const int32_t left = (pair & ~(step - 1)) * 2 + (pair & (step - 1)), right = left + step;
        const uint64_t a = room_at(left), b = room_at(right);
        if (a < b ? (left & run) == 0 : (left & run) != 0) {
          put_room(left, b);
          put_room(right, a);
        }
      }
      barrier();
    }
  }
}

}  // namespace cuda
}  // namespace twostroke
