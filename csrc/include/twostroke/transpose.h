// Transposes eight rows of eight numbers of 32 bits, in registers.
#pragma once
#include <stdint.h>

#include <utility>

#include "twostroke/products/unrolled.h"

namespace twostroke {

constexpr int64_t kEight = 8;
typedef uint32_t EightBits __attribute__((vector_size(4 * kEight)));

// Swaps bit kHalf of a number's row with that of its column.
template <int kHalf, int... kLane>
TS_INLINE void swap_halves(EightBits (&x)[kEight], std::integer_sequence<int, kLane...>) {
  TS_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if ((i & kHalf) != 0) continue;
    const EightBits a = x[i], b = x[i + kHalf];
    x[i] = __builtin_shufflevector(a, b, ((kLane & kHalf) == 0 ? kLane : kLane - kHalf + kEight)...);
    x[i + kHalf] = __builtin_shufflevector(a, b, ((kLane & kHalf) == 0 ? kLane + kHalf : kLane + kEight)...);
  }
}

TS_INLINE void transpose(EightBits (&x)[kEight]) {
  const std::make_integer_sequence<int, kEight> lanes;
  swap_halves<1>(x, lanes);
  swap_halves<2>(x, lanes);
  swap_halves<4>(x, lanes);
}

}  // namespace twostroke
