// Code that the AVX-512 files of ts_linear share: loads, broadcasts, the fold of one group, and rounding to int8.
#pragma once
#include "twostroke/products/columns.h"
#include "twostroke/products/kernel_of.h"
#include "twostroke/x86/bytes.h"

namespace twostroke {

constexpr int kVectors = 4;                 // registers across a panel

TS_INLINE __m512i load(const uint8_t* data) { return _mm512_loadu_si512(data); }

TS_INLINE __m512i broadcast_quad(const int8_t* q) {
  int32_t quad;
  memcpy(&quad, q, 4);
  return _mm512_set1_epi32(quad);
}

// The sums of one group begin with the corrections for the offset of its weights.
template <int kRows, int kAcross>
TS_INLINE void begin(const int32_t* corrections, __m512i (&integers)[kRows][kAcross]) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) integers[r][j] = _mm512_set1_epi32(corrections[r]);
  }
}

// Multiplies the weights of 16 * kAcross columns at one quad of k by the quads of kRows rows, which are stride bytes apart.
template <int kRows, int kAcross>
TS_INLINE void multiply(const __m512i (&weights)[kAcross], const int8_t* quads, int64_t stride, __m512i (&integers)[kRows][kAcross]) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512i quad = broadcast_quad(quads + r * stride);
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) integers[r][j] = _mm512_dpbusd_epi32(integers[r][j], weights[j], quad);
  }
}

TS_INLINE __m512 load_bf16(const uint8_t* data) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// fma(float(integers), x_scale * w_scale, sum) for 16 columns.
TS_INLINE __m512 folded(__m512i integers, __m512 x_scale, __m512 w_scale, __m512 sum) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers), _mm512_mul_ps(x_scale, w_scale), sum);
}

// The same, added to the sum in memory.
TS_INLINE void fold_vector(__m512i integers, __m512 x_scale, __m512 w_scale, float* sums) {
  _mm512_store_ps(sums, folded(integers, x_scale, w_scale, _mm512_load_ps(sums)));
}

template <>
struct Bytes<__m512i> {
  static TS_INLINE __m512i all(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
  static TS_INLINE __m512i both(__m512i a, __m512i b) { return _mm512_and_si512(a, b); }
  static TS_INLINE __m512i either(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
  static TS_INLINE __m512i up(__m512i a, int places) { return _mm512_slli_epi16(a, static_cast<unsigned>(places)); }
  static TS_INLINE __m512i down(__m512i a, int places) { return _mm512_srli_epi16(a, static_cast<unsigned>(places)); }
  static TS_INLINE __m512i look_up(__m128i table, __m512i places) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), places); }
  static TS_INLINE __m512i load(const uint8_t* data) { return twostroke::load(data); }
  static TS_INLINE __m512i quad(const int8_t* four) { return broadcast_quad(four); }
  static TS_INLINE __m512i all_words(int32_t word) { return _mm512_set1_epi32(word); }
  static TS_INLINE __m512i add_quad(__m512i sums, __m512i elements, __m512i quad) { return _mm512_dpbusd_epi32(sums, elements, quad); }
  // The high halves of the multipliers are zero.
  static TS_INLINE __m512i add_multiplied(__m512i total, __m512i sums, __m512i multipliers) {
    return _mm512_dpwssd_epi32(total, sums, multipliers);
  }
};

// Registers of sixteen columns: see columns.h.
struct Columns512 {
  static constexpr int kCount = 16;
  typedef __m512 Floats;
  typedef __m512i Integers;

  static TS_INLINE Floats load(const float* at) { return _mm512_load_ps(at); }
  static TS_INLINE void store(float* to, Floats floats) { _mm512_store_ps(to, floats); }
  static TS_INLINE Floats all(float x) { return _mm512_set1_ps(x); }
  static TS_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static TS_INLINE Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
  static TS_INLINE Floats to_floats(Integers integers) { return _mm512_cvtepi32_ps(integers); }
  static TS_INLINE Floats from_bf16(const uint8_t* data) { return load_bf16(data); }
  static TS_INLINE Floats from_f32(const uint8_t* data) { return _mm512_loadu_ps(data); }
  static TS_INLINE Floats low_halves(const uint8_t* data) { return _mm512_castsi512_ps(_mm512_slli_epi32(twostroke::load(data), 16)); }
  static TS_INLINE Floats high_halves(const uint8_t* data) {
    return _mm512_castsi512_ps(_mm512_and_si512(twostroke::load(data), _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
  }
  static TS_INLINE Floats from_f16(const uint8_t* data) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)));
  }
  template <bool kSigned>
  static TS_INLINE Floats from_bytes(const uint8_t* data) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
    return _mm512_cvtepi32_ps(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
  }
};

// One k: floats of a panel by the values of kRows rows.
template <int kRows>
TS_INLINE void multiply_add(__m512 (&sums)[kRows][kVectors], const __m512 (&weights)[kVectors], const float* x,
                            int64_t stride) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512 value = _mm512_set1_ps(x[r * stride]);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) sums[r][j] = _mm512_fmadd_ps(value, weights[j], sums[r][j]);
  }
}

template <int kRows>
TS_INLINE void store_rows(const __m512 (&from)[kRows][kVectors], float* sums) {
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) _mm512_store_ps(sums + r * kPanel + 16 * j, from[r][j]);
  }
}

// Multiplies a whole panel by few rows. The sums stay in registers, so that nothing comes between one line of memory and the next.
// multiply(data, columns, group, q, integers) computes one group and returns the place at which the next one begins.
template <int kRows, class Multiply>
TS_INLINE void multiply_panel(const Panel& panel, const TileRows& x, float* sums, const Multiply& multiply) {
  __m512 totals[kRows][kVectors];
  for (auto& row : totals) {
    for (__m512& total : row) total = _mm512_setzero_ps();
  }
  const uint8_t *data = panel.data, *scales = panel.scales;
  const int8_t* q = x.q;
  int64_t left = panel.columns;
  for (int64_t group = 0; left > 0; ++group, q += panel.group, left -= panel.group, scales += kPanel * 2) {
    __m512i integers[kRows][kVectors];
    data = multiply(data, left < panel.group ? left : panel.group, group, q, integers);
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const __m512 w_scale = load_bf16(scales + 32 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        totals[r][j] = folded(integers[r][j], _mm512_set1_ps(x.scales[group * x.pair_stride + r]), w_scale, totals[r][j]);
      }
    }
  }
  store_rows(totals, sums);
}

// Rounds 64 activations to bytes, in order. Where `on` is 0 the result is zero, whatever x is.
TS_INLINE __m512i quantize_64(const float* x, __m512 scale, __mmask16 on) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);
  __m512i whole[4];
  TS_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m512 rounded = _mm512_add_ps(_mm512_maskz_mul_ps(on, _mm512_loadu_ps(x + 16 * i), scale), magic);
    whole[i] = _mm512_sub_epi32(_mm512_castps_si512(rounded), _mm512_set1_epi32(0x4b400000));
  }
  // Packing leaves four bytes of each of the four registers in every 128 bits, and the permutation puts them in order. |whole| <= 127.
  const __m512i mixed = _mm512_packs_epi16(_mm512_packs_epi32(whole[0], whole[1]), _mm512_packs_epi32(whole[2], whole[3]));
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), mixed);
}

// The multipliers of one step for 16 columns, in 32-bit lanes. There are four: the low and the high nibbles of pair 0 and of pair 1.
TS_INLINE __m512i multiplier_pair(const uint8_t* step, int pair, int j) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(step + pair * kPanel + 16 * j)));
}

// Unpacks a quarter of a step of int4 (16 k of 16 columns) to signed bytes element * multiplier, plus kOffset. put(quad, bytes) takes its
// four quads of k. A multiplier in each 16 bits multiplies two elements at once, because no product exceeds 225, which fits a byte.
template <int kOffset, class Put>
TS_INLINE void unpack_part(const uint8_t* step, int j, int part, const Put& put) {
  const __m512i nibble = _mm512_set1_epi8(15);
  // A column's pair of multipliers in each of its four bytes.
  const __m512i places = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707, 0x08080808,
                                           0x09090909, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
  const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step + part / 2 * kPanel + 16 * j));
  const __m512i pairs = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(sixteen), places);
  const __m512i m = _mm512_and_si512(part % 2 == 0 ? pairs : _mm512_srli_epi16(pairs, 4), nibble);
  const __m512i both = _mm512_and_si512(m, _mm512_set1_epi16(255));
  // (nibble - 8) * m + offset = nibble * m - (8 m - offset), all modulo 256
  const __m128i eights = _mm_setr_epi8(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
  const __m128i less_of = _mm_sub_epi8(eights, _mm_set1_epi8(static_cast<char>(kOffset)));
  const __m512i less = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(less_of), m);
  TS_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int oct = 2 * part + i;
    const __m512i packed = load(step + kMultiplierBytes + oct * kQuadBytes + 64 * j);
    const __m512i low = _mm512_and_si512(packed, nibble), high = _mm512_and_si512(_mm512_srli_epi16(packed, 4), nibble);
    put(2 * oct, _mm512_sub_epi8(_mm512_mullo_epi16(low, both), less));
    put(2 * oct + 1, _mm512_sub_epi8(_mm512_mullo_epi16(high, both), less));
  }
}

// Unpacks a whole step: its 16 quads.
template <int kOffset, class Put>
TS_INLINE void unpack_step(const uint8_t* step, int j, const Put& put) {
  TS_UNROLL
  for (int part = 0; part < 4; ++part) unpack_part<kOffset>(step, j, part, put);
}

}  // namespace twostroke
