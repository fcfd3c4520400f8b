// Measures how many products of bytes NEON computes, with or without its dot and matrix products: see rate.h.
#pragma once
#include "twostroke/neon/linear.h"
#include "twostroke/neon/simd.h"
#include "twostroke/rate.h"

namespace twostroke {

TS_VECTOR_INLINE void hide(Vec&, Vec&) {}
// A multiply-add of NEON overwrites the number to which it adds.
TS_VECTOR_INLINE Vec next_sum(Vec sum, Vec a, Vec b) { return fma(a, b, sum); }

// The products of a round, and one register of them.
constexpr int64_t kInt8Ops = 16 * 2 * (kLevel.matrix_products ? 32 : 16);
TS_INLINE int32x4_t product(int32x4_t sum, int8x16_t a, int8x16_t b) {
  if constexpr (kLevel.matrix_products) return vmmlaq_s32(sum, a, b);
  return dot<0>(sum, a, b);
}
inline void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  int32x4_t sums[16];
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(1);
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  for (int64_t r = 0; r < job->rounds; ++r) {
    __asm__ volatile("" : "+w"(a), "+w"(b));
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 16; ++i) {
      if constexpr (!kLevel.dot_products) __asm__ volatile("" : "+w"(a));  // otherwise the compiler would compute the products only once
      sums[i] = product(sums[i], a, b);
    }
  }
  for (int i = 1; i < 16; ++i) sums[0] = vaddq_s32(sums[0], sums[i]);
  job->integers[index] = vaddvq_s32(sums[0]);
}

}  // namespace twostroke
