// The width of the vector type in kernels that are written once for all levels (simd.h).
#pragma once
#include <stdint.h>
#include <string.h>

#define TS_VECTOR_INLINE static inline __attribute__((always_inline))

namespace twostroke {

constexpr int kLanes = 16;

}  // namespace twostroke
