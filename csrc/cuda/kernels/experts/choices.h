// The threads of a warp choose the largest values of a row, one after the other. The values come from a row of experts' logits.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/machine/order.h"

namespace twostroke {
namespace cuda {

// The key of a value. For NaN it is below the key of every number.
TS_DEVICE_INLINE uint64_t choice_key(float value, int64_t number) { return key_of(value != value ? 0 : rank_of(value), number); }

// The result of a loop that begins with the first value and moves on to each larger one. It is the first of the largest values, but NaN
// where the first value is NaN.
TS_DEVICE_INLINE float first_largest(const float* values, int64_t count) {
  uint64_t best = 0;
  TS_ONE_BY_ONE
  for (int64_t e = warp_lane(); e < count; e += kWarp) {
    const uint64_t key = choice_key(values[e], e);
    best = key > best ? key : best;
  }
  best = warp_most(best);
  const float first = values[0];
  return first != first ? first : values[number_in(best)];
}

TS_DEVICE_INLINE bool all_finite(const float* values, int64_t count) {
  uint64_t wrong = 0;
  TS_ONE_BY_ONE
  for (int64_t e = warp_lane(); e < count; e += kWarp) wrong += values[e] - values[e] == 0.0f ? 0 : 1;
  return warp_sum(wrong) == 0;
}

// The choices of this thread of a warp, which has every 32nd value. best: the key of the largest value that is not taken. first: the place
// of the first value that is not taken. A place is twice the value's number, plus 1 where the value is not NaN.
struct OwnChoices {
  uint64_t best, first;

  template <class Values, class Taken>
  TS_MEMBER_INLINE OwnChoices(Values& values, Taken& taken, int64_t count) : best(0), first(~uint64_t{0}) {
    TS_ONE_BY_ONE
    for (int64_t e = warp_lane(); e < count; e += kWarp) {
      if (taken[e]) continue;
      const float value = values[e];
      const uint64_t key = choice_key(value, e), place = 2 * static_cast<uint64_t>(e) + (value != value ? 0 : 1);
      best = key > best ? key : best;
      first = place < first ? place : first;
    }
  }
};

// Takes `times` values that are not taken, each the first of the largest. Calls visit(count so far, number) in every thread of the warp. If
// the first value is NaN, it counts as the largest; every other NaN counts as the least. A thread alone reads and writes `taken` of its own
// values.
template <class Values, class Taken, class Visit>
TS_DEVICE_INLINE void take_largest(Values& values, Taken& taken, int64_t count, int64_t times, Visit visit) {
  OwnChoices own(values, taken, count);
  TS_ONE_BY_ONE
  for (int64_t i = 0; i < times; ++i) {
    const uint64_t first = ~warp_most(~own.first);
    const int64_t number = first % 2 == 0 ? static_cast<int64_t>(first / 2) : number_in(warp_most(own.best));
    visit(i, number);
    if (number % kWarp != warp_lane()) continue;
    taken[number] = 1;
    own = OwnChoices(values, taken, count);
  }
}

}  // namespace cuda
}  // namespace twostroke
