// Macros for kernels over packed weights, the same at every level. A file that includes only this header is compiled for fewer levels.
#pragma once
#include <stdint.h>
#include <string.h>

// An array of vector registers stays in registers only where every loop over it is unrolled and every use is inlined.
#define TS_UNROLL _Pragma("clang loop unroll(full)")
#define TS_INLINE __attribute__((always_inline)) inline
#define TS_ALWAYS __attribute__((always_inline))  // for a lambda

namespace twostroke {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

}  // namespace twostroke
