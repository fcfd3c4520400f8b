// A sum over a row by the threads of a block: sixteen partial sums, where lane i has the elements i, i + 16, ..., and then one fixed tree.
// The order is the one of the CPU's vector levels, so the bits are the same. Many threads load the row, and sixteen add it, because the
// order within a lane is fixed.
#pragma once
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kLanePiece = 4096;   // elements that shared memory holds at once
constexpr int32_t kLaneTurns = 16;  // elements of a lane that are being loaded while the ones before them are added
constexpr int32_t kLaneStep = kLaneTurns * kLanes;
constexpr int32_t kBrought = 8;  // elements that a thread loads at once

TS_SHARED(float, lane_row, kLanePiece);
TS_SHARED(float, lane_sum, 1);

// The tree of simd.h over the lanes of each half of a warp. Every lane gets the sum of its half. All threads of the warp call it.
TS_DEVICE_INLINE float sum_of_half_warp(float lane) {
  TS_EVERY_LANE
  for (int32_t half = kLanes / 2; half > 0; half /= 2) lane = lane + shuffle_across(lane, half);
  return lane;
}

struct LaneTurns {
  float v[kLaneTurns];

  // Reads the elements of lane_row from `first` on.
  TS_MEMBER_INLINE void read(int32_t first) {
    TS_EVERY_LANE
    for (int32_t j = 0; j < kLaneTurns; ++j) v[j] = lane_row[first + j * kLanes];
    TS_EVERY_LANE
    for (int32_t j = 0; j < kLaneTurns; ++j) load_before(v[j]);
  }
};

// Adds the lane's elements of lane_row to sum. There are `count` elements in all, and the row is filled up to whole steps.
template <class Add>
TS_DEVICE_INLINE float add_lane(int32_t base, int32_t count, const Add& add, float sum) {
  const int32_t lane = thread_index(), whole = count / kLaneStep * kLaneStep;
  LaneTurns now, next;
  now.read(lane);
  int32_t first = lane;
  for (; first < whole; first += kLaneStep) {
    next.read(first + kLaneStep < count ? first + kLaneStep : first);  // after the last step, the loaded elements are not used
    TS_EVERY_LANE
    for (int32_t j = 0; j < kLaneTurns; ++j) sum = add(base + first + j * kLanes, now.v[j], sum);
    now = next;
  }
  if (whole == count) return sum;
  TS_EVERY_LANE
  for (int32_t j = 0; j < kLaneTurns; ++j)
    if (first + j * kLanes < count) sum = add(base + first + j * kLanes, now.v[j], sum);
  return sum;
}

// add(i, value(i), sum) returns the sum with element i. Every thread of a block of whole warps calls this function and gets the result; it
// sees what threads wrote before. Afterwards, lane_row has the values of a row of up to kLanePiece elements, until the next call.
template <class Value, class Add>
TS_DEVICE_INLINE float sum_by_lanes(int64_t elements, const Value& value, const Add& add) {
  const int32_t thread = thread_index(), all = threads(), count = static_cast<int32_t>(elements);
  float sum = 0.0f;
  for (int32_t base = 0; base < count; base += kLanePiece) {
    const int32_t size = count - base < kLanePiece ? count - base : kLanePiece, filled = (size + kLaneStep - 1) / kLaneStep * kLaneStep;
    barrier();
    for (int32_t first = thread; first < filled; first += kBrought * all) {
      float brought[kBrought];
      TS_EVERY_LANE
      for (int32_t j = 0; j < kBrought; ++j) brought[j] = first + j * all < size ? value(base + first + j * all) : 0.0f;
      TS_EVERY_LANE
      for (int32_t j = 0; j < kBrought; ++j)
        if (first + j * all < filled) lane_row[first + j * all] = brought[j];
    }
    barrier();
    if (thread < kLanes) sum = add_lane(base, size, add, sum);
  }
  if (thread < kWarp) {
    const float whole = sum_of_half_warp(sum);
    if (thread == 0) lane_sum[0] = whole;
  }
  barrier();
  return lane_sum[0];
}

// The term that most sums over rows add.
struct AddSquare {
  TS_MEMBER_INLINE float operator()(int32_t, float value, float sum) const { return fma(value, value, sum); }
};
struct AddValue {
  TS_MEMBER_INLINE float operator()(int32_t, float value, float sum) const { return sum + value; }
};

}  // namespace cuda
}  // namespace twostroke
