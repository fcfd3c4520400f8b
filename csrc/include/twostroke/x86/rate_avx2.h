// Measures how many products of bytes AVX2 computes, with or without VNNI: see rate.h.
#pragma once
#include "twostroke/rate.h"
#include "twostroke/x86/bytes_avx2.h"
#include "twostroke/x86/simd_avx2.h"

namespace twostroke {

TS_VECTOR_INLINE void hide(Vec&, Vec&) {}
TS_VECTOR_INLINE Vec next_sum(Vec sum, Vec a, Vec b) { return fma(sum, a, b); }

constexpr int kInt8Sums = kAnyBytes ? 12 : 8;  // enough sums for the latency of a product, and few enough for 16 registers
constexpr int64_t kInt8Ops = kInt8Sums * 2 * 32;
inline void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  __m256i sums[kInt8Sums], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t r = 0; r < job->rounds; ++r) {
    _Pragma("clang loop unroll(full)") for (int i = 0; i < kInt8Sums; ++i) {
      __asm__ volatile("" : "+x"(a), "+x"(b));
      sums[i] = add_products(sums[i], a, b);
    }
  }
  for (int i = 1; i < kInt8Sums; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  job->integers[index] = _mm256_extract_epi32(sums[0], 0);
}

}  // namespace twostroke
