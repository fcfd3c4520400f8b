// Measures how many products of bytes plain C++ computes: see rate.h.
#pragma once
#include "twostroke/plain/simd.h"
#include "twostroke/rate.h"

namespace twostroke {

TS_VECTOR_INLINE void hide(Vec&, Vec&) {}
TS_VECTOR_INLINE Vec next_sum(Vec sum, Vec a, Vec b) { return fma(sum, a, b); }

constexpr int64_t kInt8Ops = 2 * 64;
inline void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  int32_t sums[16] = {};
  volatile int8_t factor = 3;
  for (int64_t r = 0; r < job->rounds; ++r) {
    const int32_t w = factor;
    for (int i = 0; i < 16; ++i) sums[i] += w * static_cast<int8_t>(r) + w * i + w * static_cast<int8_t>(i) + w;
  }
  for (int32_t sum : sums) job->integers[index] += sum;
}

}  // namespace twostroke
