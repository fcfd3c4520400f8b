// Sixteen int32 lanes as an array: the part of integers.h that depends on the instruction set.
#pragma once
#include "twostroke/plain/simd.h"

namespace twostroke {

constexpr int32_t kByteZero = 128;  // the value that offset_bytes gives for a zero
constexpr bool kWordProducts = false;

struct Ints {
  int32_t x[kLanes];
};
struct Quads {
  uint8_t x[4 * kLanes];
};
struct WideQuads {
  int16_t x[4 * kLanes];
};
#define TS_EACH_INT(expression)                                               \
  Ints r;                                                                     \
  for (int i = 0; i < kLanes; ++i) r.x[i] = static_cast<int32_t>(expression); \
  return r
#define TS_EACH_BYTE(expression)                                                  \
  WideQuads r;                                                                    \
  for (int i = 0; i < 4 * kLanes; ++i) r.x[i] = static_cast<int16_t>(expression); \
  return r
TS_VECTOR_INLINE Ints set1(int32_t x) { TS_EACH_INT(x); }
TS_VECTOR_INLINE Quads load_quads(const uint8_t* p) {
  Quads r;
  memcpy(r.x, p, sizeof r.x);
  return r;
}
TS_VECTOR_INLINE WideQuads offset_bytes(Quads a) { TS_EACH_BYTE(a.x[i]); }
TS_VECTOR_INLINE WideQuads signed_bytes(Quads a) { TS_EACH_BYTE(static_cast<int8_t>(a.x[i])); }
TS_VECTOR_INLINE WideQuads low_nibbles(Quads a) { TS_EACH_BYTE(a.x[i] & 15); }
TS_VECTOR_INLINE WideQuads high_nibbles(Quads a) { TS_EACH_BYTE(a.x[i] >> 4); }
TS_VECTOR_INLINE Ints multiply_add(Ints sum, const WideQuads& by, const int8_t* factors) {
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < 4; ++j) sum.x[i] += by.x[4 * i + j] * factors[j];
  return sum;
}
TS_VECTOR_INLINE Ints operator+(Ints a, Ints b) { TS_EACH_INT(a.x[i] + b.x[i]); }
TS_VECTOR_INLINE Ints times_128(Ints a) { TS_EACH_INT(a.x[i] * 128); }
TS_VECTOR_INLINE Vec to_float(Ints a) { TS_EACH_LANE(static_cast<float>(a.x[i])); }
TS_VECTOR_INLINE Ints magnitude_bits(Vec a) {
  Ints r;
  memcpy(r.x, a.x, sizeof r.x);
  for (int32_t& x : r.x) x &= 0x7fffffff;
  return r;
}
TS_VECTOR_INLINE Ints max(Ints a, Ints b) { TS_EACH_INT(a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
TS_VECTOR_INLINE int32_t reduce_add(Ints a) {
  int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += a.x[i];
  return total;
}
TS_VECTOR_INLINE int32_t reduce_max(Ints a) {
  int32_t largest = a.x[0];
  for (int i = 1; i < kLanes; ++i) largest = largest > a.x[i] ? largest : a.x[i];
  return largest;
}
TS_VECTOR_INLINE int16_t low_word(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return static_cast<int16_t>(bits);
}
TS_VECTOR_INLINE void store_bytes(const Vec (&rounded)[4], int8_t* to) {
  for (int i = 0; i < 4 * kLanes; ++i) to[i] = static_cast<int8_t>(low_word(rounded[i / kLanes].x[i % kLanes]));
}
TS_VECTOR_INLINE Ints store_digits(const Vec (&rounded)[4], int8_t* high, int8_t* low) {
  Ints sum = set1(0);
  for (int i = 0; i < 4 * kLanes; ++i) {
    const int16_t whole = low_word(rounded[i / kLanes].x[i % kLanes]);
    high[i] = static_cast<int8_t>(whole >> 7);
    low[i] = static_cast<int8_t>(whole & 127);
    sum.x[i % kLanes] += whole;
  }
  return sum;
}

}  // namespace twostroke
