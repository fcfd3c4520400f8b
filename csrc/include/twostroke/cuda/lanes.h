// A sum over a row by the threads of a block: sixteen partial sums, lane i of elements i, i + 16, ..., then one fixed tree, as at the CPU's
// vector levels: the same bits.
// Knows: arithmetic.h. Must not know: what is added up.
#pragma once
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, lane_sums, kLanes);

// each(i, sum): the sum with element i. Every thread of the block calls it and gets the result; what threads wrote before is read after.
template <class Each>
TS_DEVICE_INLINE float sum_by_lanes(int64_t count, const Each& each) {
  const int32_t thread = thread_index();
  barrier();
  if (thread < kLanes) {
    float sum = 0.0f;
    for (int64_t i = thread; i < count; i += kLanes) sum = each(i, sum);
    lane_sums[thread] = sum;
  }
  barrier();
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = lane_sums[i];
  return sum_tree(lanes);
}

}  // namespace cuda
}  // namespace twostroke
