// Writes one position's K or V into its page, rounded as ops/attention/kv_pages.py defines.
#pragma once
#include <math.h>
#include <string.h>

#include "twostroke/attention/kv_page.h"

namespace twostroke {

inline void convert(float value, uint16_t* out) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  *out = is_nan ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float widen(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// The first element of the largest magnitude; NaN where any element is NaN.
inline float extreme_of(const float* x, int64_t dim) {
  float largest = x[0];
  for (int64_t d = 0; d < dim; ++d) {
    if (x[d] != x[d]) return x[d];
    if (fabsf(x[d]) > fabsf(largest)) largest = x[d];
  }
  return largest;
}

// A row's scale as bf16 bits, and the bound to which q is clipped. quantize_rows of ops/attention/kv_pages.py defines both.
struct Rounding {
  float scale, low, high;
  bool usable;

  Rounding(const float* x, int64_t dim, bool nibbles, uint8_t* scale_at) {
    const float extreme = extreme_of(x, dim);
    const bool finite = fabsf(extreme) <= 3.4028234664e38f;
    uint16_t bits = 0x7FC0;
    if (finite) convert(nibbles ? extreme / -8.0f : fabsf(extreme) / 127.0f, &bits);
    memcpy(scale_at, &bits, 2);
    scale = widen(bits);
    usable = finite && (bits & 0x7FFF) != 0;
    low = nibbles ? -8.0f : -127.0f;
    high = nibbles ? 7.0f : 127.0f;
  }

  int32_t operator()(float x) const {
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23; adding it rounds to whole numbers, ties to even
    if (!usable) return 0;
    float quotient = x / scale;  // the quotient is clipped first, because a scale that underflowed may make it far too large
    quotient = quotient < low ? low : quotient > high ? high : quotient;
    return static_cast<int32_t>((quotient + kMagic) - kMagic);
  }
};

// Writes K of the position at `offset` of its page. keys: the place at which the page's K begins.
inline void write_keys_f32(const float* k, int64_t dim, int64_t offset, uint8_t* keys) {
  float* to = reinterpret_cast<float*>(keys) + offset;
  for (int64_t d = 0; d < dim; ++d) to[d * TS_PAGE_TOKENS] = k[d];
}

// Writes pairs of dimensions. An odd last dimension is paired with a zero.
inline void write_keys_bf16(const float* k, int64_t dim, int64_t offset, uint8_t* keys) {
  Bf16Pair* to = reinterpret_cast<Bf16Pair*>(keys) + offset;
  for (int64_t d = 0; d < dim; d += 2, to += TS_PAGE_TOKENS) {
    convert(k[d], &to->first);
    convert(d + 1 < dim ? k[d + 1] : 0.0f, &to->second);
  }
}

// Writes quads: four dimensions lie together. number(d) is dimension d as a whole number.
template <class Number>
void write_keys_int8(const Number& number, int64_t dim, int64_t offset, uint8_t* keys) {
  uint8_t* to = keys + offset * kQuad;
  for (int64_t d = 0; d < (dim + kQuad - 1) / kQuad * kQuad; ++d)
    to[d / kQuad * kQuad * TS_PAGE_TOKENS + d % kQuad] = static_cast<uint8_t>((d < dim ? number(d) : 0) + 128);
}

// Writes two numbers of one position into a byte, and zeros after the last dimension.
template <class Number>
uint8_t both_nibbles(const Number& number, int64_t dim, int64_t low, int64_t high) {
  return static_cast<uint8_t>(((low < dim ? number(low) : 0) + 8) | ((high < dim ? number(high) : 0) + 8) << 4);
}

// A byte holds two dimensions that are 4 apart.
template <class Number>
void write_keys_int4(const Number& number, int64_t dim, int64_t offset, uint8_t* keys) {
  uint8_t* to = keys + offset * kQuad;
  for (int64_t d = 0; d < dim; d += 2 * kQuad, to += kQuad * TS_PAGE_TOKENS)
    for (int64_t i = 0; i < kQuad; ++i) to[i] = both_nibbles(number, dim, d + i, d + i + kQuad);
}

}  // namespace twostroke
