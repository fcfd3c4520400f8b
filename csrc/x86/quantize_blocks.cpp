// Rounds rows of activations to int8 in blocks of 16 rows, with the same bits as generic/linear/linear_quantize.cpp.
#if defined(TS_LEVEL_AVX512)
#include <type_traits>

#include "twostroke/products/quantize_steps.h"
#include "twostroke/products/rotate.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

// Up to 16 rows of one group. The columns after the last whole step are copied, so that every step is a whole one.
struct Source {
  const float* x;
  int64_t stride, rows, columns, whole;
  alignas(64) float tail[kRowBlock][kStep];

  Source(const float* from, int64_t x_stride, int64_t count, int64_t width)
      : x(from), stride(x_stride), rows(count), columns(width), whole(width / kStep * kStep) {
    if (whole == columns) return;
    memset(tail, 0, sizeof(tail));
    for (int64_t r = 0; r < rows; ++r) memcpy(tail[r], x + r * stride + whole, static_cast<size_t>(columns - whole) * 4);
  }
  TS_INLINE const float* step(int64_t r, int64_t k) const { return k < whole ? x + r * stride + k : tail[r]; }
};

TS_INLINE float group_magnitude(const Source& from, int64_t r) {
  const uint32_t most = largest_bits(from.x + r * from.stride, from.whole / kStep);
  const uint32_t last = from.whole == from.columns ? 0 : largest_bits(from.tail[r], 1);
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int32_t>(last > most ? last : most))));
}

// 64 columns of a block, (16, 64) bytes: rows without a change of order.
struct StepOfRows {
  TS_INLINE void put(int64_t r, __m512i bytes, int8_t* q) { _mm512_storeu_si512(q + r * kStep, bytes); }
  TS_INLINE void end(int64_t, int8_t*) {}
  static constexpr int64_t bytes(int64_t) { return kRowBlock * kStep; }
};

// Transposes 16 registers: word w of register r becomes word r of register w.
TS_INLINE void transpose(const __m512i (&from)[kRowBlock], __m512i (&to)[kRowBlock]) {
  __m512i pairs[kRowBlock], fours[kRowBlock];
  TS_UNROLL
  for (int i = 0; i < kRowBlock; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
  }
  TS_UNROLL
  for (int i = 0; i < kRowBlock; i += 4) {  // fours[i + n] has word n of every 128 bits of four rows
    TS_UNROLL
    for (int h = 0; h < 2; ++h) {
      fours[i + 2 * h] = _mm512_unpacklo_epi64(pairs[i + h], pairs[i + 2 + h]);
      fours[i + 2 * h + 1] = _mm512_unpackhi_epi64(pairs[i + h], pairs[i + 2 + h]);
    }
  }
  TS_UNROLL
  for (int n = 0; n < 4; ++n) {
    const __m512i a = _mm512_shuffle_i32x4(fours[n], fours[4 + n], 0x88), b = _mm512_shuffle_i32x4(fours[8 + n], fours[12 + n], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(fours[n], fours[4 + n], 0xdd), d = _mm512_shuffle_i32x4(fours[8 + n], fours[12 + n], 0xdd);
    to[n] = _mm512_shuffle_i32x4(a, b, 0x88);
    to[8 + n] = _mm512_shuffle_i32x4(a, b, 0xdd);
    to[4 + n] = _mm512_shuffle_i32x4(c, d, 0x88);
    to[12 + n] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
}

// 64 columns of a block, (16 quads, rows, 4) bytes.
struct StepOfQuads {
  __m512i rows_bytes[kRowBlock] = {};

  TS_INLINE void put(int64_t r, __m512i bytes, int8_t*) { rows_bytes[r] = bytes; }
  TS_INLINE void end(int64_t rows, int8_t* q) {
    __m512i quads[kRowBlock];
    transpose(rows_bytes, quads);
    const __mmask16 present = static_cast<__mmask16>((1u << rows) - 1);
    TS_UNROLL
    for (int i = 0; i < kRowBlock; ++i) _mm512_mask_storeu_epi32(q + i * rows * 4, present, quads[i]);
  }
  static constexpr int64_t bytes(int64_t rows) { return rows * kStep; }
};
using Step = std::conditional_t<kLevel.matrix_registers, StepOfRows, StepOfQuads>;

// Rounds 64 columns of all rows before the next 64 columns, so that stores are consecutive in memory.
void quantize_source(const Source& from, int64_t rows, int64_t columns, QuantizedRow to) {
  __m512 inverses[kRowBlock];
  __mmask16 on[kRowBlock];
  __m512i totals[kRowBlock];
  Step step;
  for (int64_t r = 0; r < rows; ++r) {
    const float amax = group_magnitude(from, r);
    const bool usable = amax >= kLeastMagnitude && amax <= kMostMagnitude;
    inverses[r] = _mm512_set1_ps(usable ? 127.0f / amax : 0.0f);
    on[r] = usable ? 0xffff : 0;
    totals[r] = _mm512_setzero_si512();
    to.scales[r] = amax / 127.0f;
  }
  for (int64_t k = 0; k < columns; k += kStep, to.q += Step::bytes(rows)) {
    for (int64_t r = 0; r < rows; ++r) {
      const __m512i bytes = quantize_64(from.step(r, k), inverses[r], on[r]);
      step.put(r, bytes, to.q);
      totals[r] = _mm512_dpbusd_epi32(totals[r], _mm512_set1_epi8(1), bytes);
    }
    step.end(rows, to.q);
  }
  for (int64_t r = 0; r < rows; ++r) to.corrections[r] = -128 * _mm512_reduce_add_epi32(totals[r]);
}

// Rotates rows one after the other, and then rounds them like rows without rotation.
void quantize_rotated(const float* x, int64_t x_stride, int64_t rows, int64_t columns, QuantizedRow to) {
  alignas(64) float rotated[kRowBlock * kMaxGroup];
  const int64_t padded = round_up(columns, kStep);
  for (int64_t r = 0; r < rows; ++r) rotate_columns(x + r * x_stride, columns, rotated + r * padded);
  quantize_source(Source(rotated, padded, rows, padded), rows, padded, to);
}

}  // namespace

void quantize_block(const float* x, int64_t x_stride, int64_t rows, int64_t columns, int64_t rotated, QuantizedRow to) {
  if (rotated != 0) return quantize_rotated(x, x_stride, rows, columns, to);
  quantize_source(Source(x, x_stride, rows, columns), rows, columns, to);
}

}  // namespace twostroke
#endif
