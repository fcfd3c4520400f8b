// Full steps of quantize_row for AVX-512 with VNNI: the same bits as generic/linear_quantize.cpp.
// Knows: the rounding rule, 512-bit registers. Must not know: rows, scales.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/quantize_step.h"
#include "twostroke/vnni.h"

namespace twostroke {
uint32_t largest_bits(const float* x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i best = _mm512_setzero_si512();
  TS_UNROLL
  for (int i = 0; i < 4; ++i) best = _mm512_max_epu32(best, _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), magnitude));
  return _mm512_reduce_max_epu32(best);
}

int32_t quantize_step(const float* x, float inverse, int8_t* q, int32_t* sub_corrections) {
  const __m512i bytes = quantize_64(x, _mm512_set1_ps(inverse), 0xffff);
  _mm512_storeu_si512(q, bytes);
  __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  const __m128i four = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, sums));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sub_corrections), _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(four, 3)));
  return _mm_cvtsi128_si32(_mm_hadd_epi32(_mm_hadd_epi32(four, four), four));
}

}  // namespace twostroke
#endif
