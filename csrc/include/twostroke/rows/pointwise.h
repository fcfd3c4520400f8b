// The steps of a program of pointwise, and the operands that they need. The steps have the numbers of src/twostroke/ops/rows/pointwise.py.
#pragma once
#include "twostroke/ops.h"

namespace twostroke {

enum PointStep {
  kTimesA = 1, kTimesB = 2, kWithinA = 3, kTanh = 4, kTimesNumbers = 5, kMinusNumbers = 6, kBetweenNumbers = 7, kXielu = 8, kPlusY = 9,
  kFirstActivation = 16, kStepsEnd = 26
};

// The program with a single step, which is an activation.
constexpr int64_t activation_program(int64_t activation) { return kFirstActivation + activation; }

// Returns TS_OK, or the status for an operand that a step of a program lacks.
inline int32_t check_step(const ts_pointwise_args& a, int64_t step) {
  const int64_t length = a.numbers.data == nullptr ? 0 : a.numbers.length, width = width_of(a.out);
  switch (step) {
    case kTimesA:
    case kTimesB:
    case kTanh: return TS_OK;
    case kWithinA: return a.a > 0.0 ? TS_OK : TS_BAD_VALUE;
    case kTimesNumbers: return length > 0 && (length == 1 || length == width) ? TS_OK : TS_BAD_SHAPE;
    case kMinusNumbers: return length > 0 && length == width ? TS_OK : TS_BAD_SHAPE;
    case kBetweenNumbers: return length == 2 ? TS_OK : TS_BAD_SHAPE;
    case kXielu: return length == 4 ? TS_OK : TS_BAD_SHAPE;
    case kPlusY: return a.y.data != nullptr || a.out.rows == 0 ? TS_OK : TS_BAD_POINTER;
    default: return step >= kFirstActivation && step < kStepsEnd ? TS_OK : TS_BAD_FORMAT;
  }
}

inline int32_t check_shapes(const ts_pointwise_args& a) {
  const ts_value both[] = {a.x, a.y};
  for (const ts_value& each : both)
    if (each.data != nullptr && (each.rows != a.out.rows || width_of(each) != width_of(a.out))) return TS_BAD_SHAPE;
  if (a.program <= 0) return TS_BAD_FORMAT;
  int32_t status = TS_OK;
  for (int64_t left = a.program; left != 0 && status == TS_OK; left >>= 8) status = check_step(a, left & 255);
  return status;
}

}  // namespace twostroke
