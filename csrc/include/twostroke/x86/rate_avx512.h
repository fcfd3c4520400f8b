// Measures how many products of bytes AVX-512 computes: see rate.h.
#pragma once
#include "twostroke/x86/rate_wide.h"

namespace twostroke {

constexpr int64_t kInt8Ops = 16 * 2 * 64;
inline void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  __m512i sums[16], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t r = 0; r < job->rounds; ++r) {
    hide_wide(a, b);
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 16; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  job->integers[index] = _mm512_reduce_add_epi32(total);
}

}  // namespace twostroke
