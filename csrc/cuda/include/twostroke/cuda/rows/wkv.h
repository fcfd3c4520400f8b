// The norm after a head, which the scans of RWKV share.
#pragma once
#include "twostroke/cuda/machine/lanes.h"
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

// Computes x = (x - mean) / sqrt(variance + eps) * weight + bias over x. All threads of the block call it.
TS_DEVICE_INLINE void norm_of_head(float* x, const float* weight, const float* bias, float eps, int64_t length) {
  const float count = static_cast<float>(length);
  const float mean = sum_by_lanes(length, [&](int32_t i) { return x[i]; }, AddValue()) / count;
  const float squares = sum_by_lanes(length, [&](int32_t i) { return x[i] - mean; }, AddSquare());
  const float scale = 1.0f / __builtin_sqrtf(squares / count + eps);
  for (int64_t i = thread_index(); i < length; i += threads()) x[i] = fma((x[i] - mean) * scale, weight[i], bias[i]);
}

}  // namespace cuda
}  // namespace twostroke
