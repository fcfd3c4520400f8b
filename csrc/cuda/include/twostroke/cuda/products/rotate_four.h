// Rotates 64 columns with 16 neighbouring threads of a warp, which have four columns each. The additions are those of rotate.h, in their
// order.
#pragma once
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

// Every thread of the warp calls it.
TS_DEVICE_INLINE Words4 rotated_four(Words4 own) {
  const float a = float_of(own[0]) + float_of(own[1]), b = float_of(own[0]) - float_of(own[1]);
  const float c = float_of(own[2]) + float_of(own[3]), d = float_of(own[2]) - float_of(own[3]);
  float x[4] = {a + c, b + d, a - c, b - d};
  for (int32_t mask = 1; mask < 16; mask *= 2) {
    const bool second = (warp_lane() & mask) != 0;
    TS_EVERY_LANE
    for (int i = 0; i < 4; ++i) {
      const float other = shuffle_across(x[i], mask);
      x[i] = second ? other - x[i] : x[i] + other;
    }
  }
  return Words4{bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])};
}

}  // namespace cuda
}  // namespace twostroke
