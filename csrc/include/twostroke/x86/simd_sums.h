// Sums and maxima over sixteen lanes, from their lower and upper eight. The tree is that of simd.h.
#pragma once

namespace twostroke {

TS_VECTOR_INLINE float reduce_add(Vec a) {
  const __m256 eight = _mm256_add_ps(lower(a), upper(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
TS_VECTOR_INLINE float reduce_max(Vec a) {
  const __m256 eight = _mm256_max_ps(lower(a), upper(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace twostroke
