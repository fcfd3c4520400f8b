// The instructions of AVX-512 that kernels use (F, BW, DQ, VNNI, BF16; Intel's manual, volume 2), by AVX2 and the compiler's own vectors,
// for tests. The header is included before a source of the level `avx512`, so that a CPU without these instructions runs it, with the same
// bits. An instruction that is not here does not compile.
#pragma once
#include <stdint.h>
#include <string.h>

#include "twostroke/x86/registers.h"

#define TS_NO_WIDE_REGISTERS  // inline assembly has no place for 512 bits

#pragma clang diagnostic ignored "-Wpsabi"  // no function here is called by other libraries

namespace wide {

#define WIDE __attribute__((always_inline)) inline

typedef uint8_t U8 __attribute__((vector_size(64)));
typedef int16_t I16 __attribute__((vector_size(64)));
typedef int32_t I32 __attribute__((vector_size(64)));
typedef uint32_t U32 __attribute__((vector_size(64)));

WIDE __m256i low(__m512i a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3); }
WIDE __m256i high(__m512i a) { return __builtin_shufflevector(a, a, 4, 5, 6, 7); }
WIDE __m512i join(__m256i a, __m256i b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7); }
WIDE __m256 low(__m512 a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7); }
WIDE __m256 high(__m512 a) { return __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15); }
WIDE __m512 join(__m256 a, __m256 b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

template <class To, class From>
WIDE To loaded(const From* from) {
  To to;
  memcpy(&to, from, sizeof to);
  return to;
}
template <class Vector>
WIDE void stored(void* to, Vector a) {
  memcpy(to, &a, sizeof a);
}

// Applies an AVX2 function to each half, lane by lane.
#define WIDE_HALVES(name, of) \
  WIDE __m512i name(__m512i a, __m512i b) { return join(of(low(a), low(b)), of(high(a), high(b))); }
WIDE_HALVES(add_epi32, _mm256_add_epi32)
WIDE_HALVES(sub_epi32, _mm256_sub_epi32)
WIDE_HALVES(sub_epi8, _mm256_sub_epi8)
WIDE_HALVES(and_si512, _mm256_and_si256)
WIDE_HALVES(or_si512, _mm256_or_si256)
WIDE_HALVES(max_epi32, _mm256_max_epi32)
WIDE_HALVES(max_epu32, _mm256_max_epu32)
WIDE_HALVES(mullo_epi16, _mm256_mullo_epi16)
WIDE_HALVES(mullo_epi32, _mm256_mullo_epi32)
WIDE_HALVES(madd_epi16, _mm256_madd_epi16)
WIDE_HALVES(packs_epi16, _mm256_packs_epi16)
WIDE_HALVES(packs_epi32, _mm256_packs_epi32)
WIDE_HALVES(shuffle_epi8, _mm256_shuffle_epi8)
WIDE_HALVES(unpacklo_epi32, _mm256_unpacklo_epi32)
WIDE_HALVES(unpackhi_epi32, _mm256_unpackhi_epi32)
WIDE_HALVES(unpacklo_epi64, _mm256_unpacklo_epi64)
WIDE_HALVES(unpackhi_epi64, _mm256_unpackhi_epi64)
#undef WIDE_HALVES

#define WIDE_HALVES(name, of) \
  WIDE __m512 name(__m512 a, __m512 b) { return join(of(low(a), low(b)), of(high(a), high(b))); }
WIDE_HALVES(add_ps, _mm256_add_ps)
WIDE_HALVES(sub_ps, _mm256_sub_ps)
WIDE_HALVES(mul_ps, _mm256_mul_ps)
WIDE_HALVES(div_ps, _mm256_div_ps)
WIDE_HALVES(max_ps, _mm256_max_ps)
WIDE_HALVES(min_ps, _mm256_min_ps)
WIDE_HALVES(unpacklo_ps, _mm256_unpacklo_ps)
WIDE_HALVES(unpackhi_ps, _mm256_unpackhi_ps)
#undef WIDE_HALVES

#define WIDE_SHIFTS(name, of) \
  WIDE __m512i name(__m512i a, int count) { return join(of(low(a), count), of(high(a), count)); }
WIDE_SHIFTS(slli_epi16, _mm256_slli_epi16)
WIDE_SHIFTS(slli_epi32, _mm256_slli_epi32)
WIDE_SHIFTS(srli_epi16, _mm256_srli_epi16)
WIDE_SHIFTS(srli_epi32, _mm256_srli_epi32)
WIDE_SHIFTS(srai_epi16, _mm256_srai_epi16)
WIDE_SHIFTS(srai_epi32, _mm256_srai_epi32)
#undef WIDE_SHIFTS

WIDE __m512d unpacklo_pd(__m512d a, __m512d b) { return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14); }
WIDE __m512d unpackhi_pd(__m512d a, __m512d b) { return __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15); }
WIDE __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  return join(_mm256_fmadd_ps(low(a), low(b), low(c)), _mm256_fmadd_ps(high(a), high(b), high(c)));
}
WIDE __m512 fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return join(_mm256_fnmadd_ps(low(a), low(b), low(c)), _mm256_fnmadd_ps(high(a), high(b), high(c)));
}
WIDE __m512 sqrt_ps(__m512 a) { return join(_mm256_sqrt_ps(low(a)), _mm256_sqrt_ps(high(a))); }
WIDE __m512 round_even(__m512 a) {
  constexpr int kEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return join(_mm256_round_ps(low(a), kEven), _mm256_round_ps(high(a), kEven));
}

WIDE __m512 cvtepi32_ps(__m512i a) { return join(_mm256_cvtepi32_ps(low(a)), _mm256_cvtepi32_ps(high(a))); }
WIDE __m512i cvtps_epi32(__m512 a) { return join(_mm256_cvtps_epi32(low(a)), _mm256_cvtps_epi32(high(a))); }
WIDE __m512 cvtph_ps(__m256i a) { return join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))); }
WIDE __m512i cvtepu16_epi32(__m256i a) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
WIDE __m512i cvtepu8_epi32(__m128i a) { return join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8))); }
WIDE __m512i cvtepi8_epi32(__m128i a) { return join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))); }

WIDE __m512i set1_epi8(char a) { return join(_mm256_set1_epi8(a), _mm256_set1_epi8(a)); }
WIDE __m512i set1_epi16(short a) { return join(_mm256_set1_epi16(a), _mm256_set1_epi16(a)); }
WIDE __m512i set1_epi32(int a) { return join(_mm256_set1_epi32(a), _mm256_set1_epi32(a)); }
WIDE __m512 set1_ps(float a) { return join(_mm256_set1_ps(a), _mm256_set1_ps(a)); }
WIDE __m512i broadcast_i32x4(__m128i a) { return join(_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a)); }

template <class... Each>
WIDE __m512i setr_epi32(Each... each) {
  static_assert(sizeof...(each) == 16, "one for each lane");
  return reinterpret_cast<__m512i>(I32{each...});
}
template <class... Each>
WIDE __m512i setr_epi64(Each... each) {
  static_assert(sizeof...(each) == 8, "one for each lane");
  return __m512i{each...};
}
// The first argument is the highest lane.
template <class... Each>
WIDE __m512i set_epi16(Each... each) {
  static_assert(sizeof...(each) == 32, "one for each lane");
  const int16_t given[] = {static_cast<int16_t>(each)...};
  int16_t lanes[32];
  for (int i = 0; i < 32; ++i) lanes[i] = given[31 - i];
  return loaded<__m512i>(lanes);
}

// Adds the products of four unsigned and four signed bytes, or of two pairs of 16 bits, in each 32 bits. Nothing saturates.
WIDE __m512i dpbusd_epi32(__m512i sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  const __m512i even = madd_epi16(and_si512(unsigned_bytes, set1_epi16(255)), srai_epi16(slli_epi16(signed_bytes, 8), 8));
  const __m512i odd = madd_epi16(srli_epi16(unsigned_bytes, 8), srai_epi16(signed_bytes, 8));
  return add_epi32(sum, add_epi32(even, odd));
}
WIDE __m512i dpwssd_epi32(__m512i sum, __m512i a, __m512i b) { return add_epi32(sum, madd_epi16(a, b)); }

// Rounds to the nearest, ties to even. Numbers below the normal ones become zero of their sign, and NaN becomes a quiet NaN.
WIDE __m256bh cvtneps_pbh(__m512 a) {
  uint32_t words[16];
  uint16_t halves[16];
  memcpy(words, &a, sizeof words);
  for (int i = 0; i < 16; ++i) {
    const uint32_t word = words[i], magnitude = word & 0x7fffffffu;
    const uint32_t rounded = (word + 0x7fffu + (word >> 16 & 1)) >> 16;
    halves[i] = static_cast<uint16_t>(magnitude > 0x7f800000u ? word >> 16 | 0x40u : magnitude < 0x00800000u ? word >> 16 & 0x8000u : rounded);
  }
  return loaded<__m256bh>(halves);
}

template <class Lanes, class From>
WIDE __m512i permuted(const From& places, Lanes a) {
  constexpr int kCount = sizeof(Lanes) / sizeof(a[0]);
  Lanes to;
  for (int i = 0; i < kCount; ++i) to[i] = a[places[i] & (kCount - 1)];
  return reinterpret_cast<__m512i>(to);
}
WIDE __m512i permutexvar_epi32(__m512i places, __m512i a) { return permuted(reinterpret_cast<I32>(places), reinterpret_cast<I32>(a)); }
WIDE __m512i permutexvar_epi64(__m512i places, __m512i a) { return permuted(places, a); }
WIDE __m512i permutex2var_epi16(__m512i a, __m512i places, __m512i b) {
  const I16 first = reinterpret_cast<I16>(a), second = reinterpret_cast<I16>(b), at = reinterpret_cast<I16>(places);
  I16 to;
  for (int i = 0; i < 32; ++i) to[i] = at[i] & 32 ? second[at[i] & 31] : first[at[i] & 31];
  return reinterpret_cast<__m512i>(to);
}
// Four lanes of 128 bits: two of a, and two of b.
WIDE __m512i shuffle_i32x4(__m512i a, __m512i b, int places) {
  __m512i to;
  for (int i = 0; i < 4; ++i) {
    const int from = 2 * (places >> 2 * i & 3);
    to[2 * i] = i < 2 ? a[from] : b[from];
    to[2 * i + 1] = i < 2 ? a[from + 1] : b[from + 1];
  }
  return to;
}
// Shuffles within each 128 bits.
WIDE __m512i shuffle_epi32(__m512i a, int places) {
  const I32 from = reinterpret_cast<I32>(a);
  I32 to;
  for (int i = 0; i < 16; ++i) to[i] = from[(i & ~3) + (places >> 2 * (i & 3) & 3)];
  return reinterpret_cast<__m512i>(to);
}

// Selects lanes whose bit is set. The others are zero, or do not change.
WIDE __m512 mask_blend_ps(uint16_t mask, __m512 clear, __m512 set) {
  for (int i = 0; i < 16; ++i) clear[i] = mask >> i & 1 ? set[i] : clear[i];
  return clear;
}
WIDE __m512 maskz_mul_ps(uint16_t mask, __m512 a, __m512 b) { return mask_blend_ps(mask, __m512{}, mul_ps(a, b)); }
WIDE __m512i maskz_set1_epi8(uint64_t mask, char a) {
  U8 to = {};
  for (int i = 0; i < 64; ++i) to[i] = mask >> i & 1 ? static_cast<uint8_t>(a) : 0;
  return reinterpret_cast<__m512i>(to);
}
WIDE uint64_t test_epi8_mask(__m512i a, __m512i b) {
  const U8 both = reinterpret_cast<U8>(and_si512(a, b));
  uint64_t mask = 0;
  for (int i = 0; i < 64; ++i) mask |= static_cast<uint64_t>(both[i] != 0) << i;
  return mask;
}
WIDE __m512i maskz_loadu_epi32(uint16_t mask, const void* from) {
  I32 to = {};
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) to[i] = loaded<int32_t>(static_cast<const int32_t*>(from) + i);
  }
  return reinterpret_cast<__m512i>(to);
}
WIDE void mask_storeu_epi32(void* to, uint16_t mask, __m512i a) {
  const I32 from = reinterpret_cast<I32>(a);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) stored(static_cast<int32_t*>(to) + i, static_cast<int32_t>(from[i]));
  }
}
WIDE __m512i maskz_compress_epi32(uint16_t mask, __m512i a) {
  const I32 from = reinterpret_cast<I32>(a);
  I32 to = {};
  for (int i = 0, next = 0; i < 16; ++i) {
    if (mask >> i & 1) to[next++] = from[i];
  }
  return reinterpret_cast<__m512i>(to);
}

WIDE int32_t reduce_add_epi32(__m512i a) {
  uint32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += reinterpret_cast<U32>(a)[i];
  return static_cast<int32_t>(sum);
}
template <class Lanes>
WIDE auto largest(Lanes a) {
  auto found = a[0];
  for (int i = 1; i < 16; ++i) found = a[i] > found ? a[i] : found;
  return found;
}
WIDE int32_t reduce_max_epi32(__m512i a) { return largest(reinterpret_cast<I32>(a)); }
WIDE uint32_t reduce_max_epu32(__m512i a) { return largest(reinterpret_cast<U32>(a)); }

// Aligned accesses end the process where an address is not aligned, as on a CPU.
WIDE void require_aligned(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 64 != 0) __builtin_trap();
}
template <class Vector>
WIDE Vector load_aligned(const void* from) {
  require_aligned(from);
  return loaded<Vector>(from);
}
template <class Vector>
WIDE void store_aligned(void* to, Vector a) {
  require_aligned(to);
  stored(to, a);
}

#undef WIDE

}  // namespace wide

#undef _mm512_extractf32x8_ps
#undef _mm512_roundscale_ps
#undef _mm512_shuffle_epi32
#undef _mm512_shuffle_i32x4
#define _mm512_add_epi32 wide::add_epi32
#define _mm512_add_ps wide::add_ps
#define _mm512_and_si512 wide::and_si512
#define _mm512_broadcast_i32x4 wide::broadcast_i32x4
#define _mm512_castpd_ps(a) reinterpret_cast<__m512>(a)
#define _mm512_castps512_ps256(a) wide::low(a)
#define _mm512_castps_pd(a) reinterpret_cast<__m512d>(a)
#define _mm512_castps_si512(a) reinterpret_cast<__m512i>(a)
#define _mm512_castsi512_ps(a) reinterpret_cast<__m512>(a)
#define _mm512_castsi512_si128(a) _mm256_castsi256_si128(wide::low(a))
#define _mm512_cvtepi32_ps wide::cvtepi32_ps
#define _mm512_cvtepi8_epi32 wide::cvtepi8_epi32
#define _mm512_cvtepu16_epi32 wide::cvtepu16_epi32
#define _mm512_cvtepu8_epi32 wide::cvtepu8_epi32
#define _mm512_cvtneps_pbh wide::cvtneps_pbh
#define _mm512_cvtph_ps wide::cvtph_ps
#define _mm512_cvtps_epi32 wide::cvtps_epi32
#define _mm512_div_ps wide::div_ps
#define _mm512_dpbusd_epi32 wide::dpbusd_epi32
#define _mm512_dpwssd_epi32 wide::dpwssd_epi32
#define _mm512_extractf32x8_ps(a, half) ((half) == 0 ? wide::low(a) : wide::high(a))
#define _mm512_fmadd_ps wide::fmadd_ps
#define _mm512_fnmadd_ps wide::fnmadd_ps
#define _mm512_load_ps(from) wide::load_aligned<__m512>(from)
#define _mm512_load_si512(from) wide::load_aligned<__m512i>(from)
#define _mm512_loadu_ps(from) wide::loaded<__m512>(from)
#define _mm512_loadu_si512(from) wide::loaded<__m512i>(from)
#define _mm512_madd_epi16 wide::madd_epi16
#define _mm512_mask_blend_ps wide::mask_blend_ps
#define _mm512_mask_storeu_epi32 wide::mask_storeu_epi32
#define _mm512_maskz_compress_epi32 wide::maskz_compress_epi32
#define _mm512_maskz_loadu_epi32 wide::maskz_loadu_epi32
#define _mm512_maskz_mul_ps wide::maskz_mul_ps
#define _mm512_maskz_set1_epi8 wide::maskz_set1_epi8
#define _mm512_max_epi32 wide::max_epi32
#define _mm512_max_epu32 wide::max_epu32
#define _mm512_max_ps wide::max_ps
#define _mm512_min_ps wide::min_ps
#define _mm512_mul_ps wide::mul_ps
#define _mm512_mullo_epi16 wide::mullo_epi16
#define _mm512_mullo_epi32 wide::mullo_epi32
#define _mm512_or_si512 wide::or_si512
#define _mm512_packs_epi16 wide::packs_epi16
#define _mm512_packs_epi32 wide::packs_epi32
#define _mm512_permutex2var_epi16 wide::permutex2var_epi16
#define _mm512_permutexvar_epi32 wide::permutexvar_epi32
#define _mm512_permutexvar_epi64 wide::permutexvar_epi64
#define _mm512_reduce_add_epi32 wide::reduce_add_epi32
#define _mm512_reduce_max_epi32 wide::reduce_max_epi32
#define _mm512_reduce_max_epu32 wide::reduce_max_epu32
#define _mm512_roundscale_ps(a, how) wide::round_even(a)
#define _mm512_set1_epi16 wide::set1_epi16
#define _mm512_set1_epi32 wide::set1_epi32
#define _mm512_set1_epi8 wide::set1_epi8
#define _mm512_set1_ps wide::set1_ps
#define _mm512_set_epi16 wide::set_epi16
#define _mm512_setr_epi32 wide::setr_epi32
#define _mm512_setr_epi64 wide::setr_epi64
#define _mm512_setzero_ps() __m512{}
#define _mm512_setzero_si512() __m512i{}
#define _mm512_shuffle_epi32 wide::shuffle_epi32
#define _mm512_shuffle_epi8 wide::shuffle_epi8
#define _mm512_shuffle_i32x4 wide::shuffle_i32x4
#define _mm512_slli_epi16 wide::slli_epi16
#define _mm512_slli_epi32 wide::slli_epi32
#define _mm512_sqrt_ps wide::sqrt_ps
#define _mm512_srai_epi16 wide::srai_epi16
#define _mm512_srai_epi32 wide::srai_epi32
#define _mm512_srli_epi16 wide::srli_epi16
#define _mm512_srli_epi32 wide::srli_epi32
#define _mm512_store_ps(to, a) wide::store_aligned<__m512>(to, a)
#define _mm512_store_si512(to, a) wide::store_aligned<__m512i>(to, a)
#define _mm512_storeu_ps(to, a) wide::stored<__m512>(to, a)
#define _mm512_storeu_si512(to, a) wide::stored<__m512i>(to, a)
#define _mm512_sub_epi32 wide::sub_epi32
#define _mm512_sub_epi8 wide::sub_epi8
#define _mm512_sub_ps wide::sub_ps
#define _mm512_test_epi8_mask wide::test_epi8_mask
#define _mm512_unpackhi_epi32 wide::unpackhi_epi32
#define _mm512_unpackhi_epi64 wide::unpackhi_epi64
#define _mm512_unpackhi_pd wide::unpackhi_pd
#define _mm512_unpackhi_ps wide::unpackhi_ps
#define _mm512_unpacklo_epi32 wide::unpacklo_epi32
#define _mm512_unpacklo_epi64 wide::unpacklo_epi64
#define _mm512_unpacklo_pd wide::unpacklo_pd
#define _mm512_unpacklo_ps wide::unpacklo_ps
