// The part of quantize_row that works on whole steps, for AVX-512 with VNNI. It gives the same bits as generic/linear/linear_quantize.cpp.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/products/quantize_steps.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

// The sums of each 16 of 64 bytes.
TS_INLINE __m128i subgroup_sums(__m512i bytes) {
  __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  return _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, sums));
}

}  // namespace

uint32_t vector_largest_bits(const float* x, int64_t steps) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i best[4] = {};
  for (const float* end = x + steps * kStep; x < end; x += kStep) {
    TS_UNROLL
    for (int i = 0; i < 4; ++i) best[i] = _mm512_max_epu32(best[i], _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), magnitude));
  }
  return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(best[0], best[1]), _mm512_max_epu32(best[2], best[3])));
}

int32_t vector_quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  const __m512 scale = _mm512_set1_ps(inverse);
  __m128i total = _mm_setzero_si128();
  for (const float* end = x + steps * kStep; x < end; x += kStep, q += kStep, sub_corrections += kStep / kSubgroup) {
    const __m512i bytes = quantize_64(x, scale, 0xffff);
    const __m128i four = subgroup_sums(bytes);
    _mm512_storeu_si512(q, bytes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sub_corrections), _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(four, 3)));
    total = _mm_add_epi32(total, four);
  }
  return _mm_cvtsi128_si32(_mm_hadd_epi32(_mm_hadd_epi32(total, total), total));
}

}  // namespace twostroke
#endif
