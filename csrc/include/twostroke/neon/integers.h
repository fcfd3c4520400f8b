// Sixteen int32 lanes as four registers of ARMv8-A: the part of integers.h that depends on the instruction set.
#pragma once
#include "twostroke/level.h"
#include "twostroke/neon/simd.h"
#include "twostroke/products/quad.h"

namespace twostroke {

// Products here are of signed bytes, so 128 is subtracted from stored bytes of int8 as they are loaded.
constexpr int32_t kByteZero = 0;
constexpr bool kWordProducts = false;

struct Ints {
  int32x4_t v[4];
};
struct Quads {
  uint8x16_t v[4];
};
#define TS_EVERY_REGISTER _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; ++i)
#define TS_EACH_INT(expression)                  \
  Ints r;                                        \
  TS_EVERY_REGISTER r.v[i] = (expression);       \
  return r
TS_VECTOR_INLINE Ints set1(int32_t x) { TS_EACH_INT(vdupq_n_s32(x)); }
TS_VECTOR_INLINE Quads load_quads(const uint8_t* p) {
  Quads r;
  TS_EVERY_REGISTER r.v[i] = vld1q_u8(p + 16 * i);
  return r;
}
struct SignedQuads {
  int8x16_t v[4];
};
#define TS_EACH_BYTES(expression)                                \
  SignedQuads r;                                                 \
  TS_EVERY_REGISTER r.v[i] = vreinterpretq_s8_u8(expression);    \
  return r
TS_VECTOR_INLINE SignedQuads offset_bytes(Quads a) { TS_EACH_BYTES(veorq_u8(a.v[i], vdupq_n_u8(128))); }
TS_VECTOR_INLINE SignedQuads signed_bytes(Quads a) { TS_EACH_BYTES(a.v[i]); }
TS_VECTOR_INLINE SignedQuads low_nibbles(Quads a) { TS_EACH_BYTES(vandq_u8(a.v[i], vdupq_n_u8(15))); }
TS_VECTOR_INLINE SignedQuads high_nibbles(Quads a) { TS_EACH_BYTES(vshrq_n_u8(a.v[i], 4)); }
#undef TS_EACH_BYTES
TS_VECTOR_INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
  if constexpr (kLevel.dot_products) return vdotq_s32(sum, a, b);
  // Each of four products of bytes has a magnitude of at most 2^14, so their sums need 32 bits.
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
  return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
TS_VECTOR_INLINE Ints multiply_add(Ints sum, SignedQuads by, const int8_t* factors) {
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(quad_of(factors)));
  TS_EVERY_REGISTER sum.v[i] = dot(sum.v[i], by.v[i], all);
  return sum;
}
TS_VECTOR_INLINE Ints operator+(Ints a, Ints b) { TS_EACH_INT(vaddq_s32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Ints times_128(Ints a) { TS_EACH_INT(vshlq_n_s32(a.v[i], 7)); }
TS_VECTOR_INLINE Vec to_float(Ints a) {
  Vec r;
  TS_EVERY_REGISTER r.v[i] = vcvtq_f32_s32(a.v[i]);
  return r;
}
TS_VECTOR_INLINE Ints magnitude_bits(Vec a) { TS_EACH_INT(vandq_s32(vreinterpretq_s32_f32(a.v[i]), vdupq_n_s32(0x7fffffff))); }
TS_VECTOR_INLINE Ints max(Ints a, Ints b) { TS_EACH_INT(vmaxq_s32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE int32_t reduce_add(Ints a) { return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3]))); }
TS_VECTOR_INLINE int32_t reduce_max(Ints a) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3]))); }
TS_VECTOR_INLINE int16x8_t low_words(float32x4_t a, float32x4_t b) {
  return vmovn_high_s32(vmovn_s32(vreinterpretq_s32_f32(a)), vreinterpretq_s32_f32(b));
}
TS_VECTOR_INLINE void store_bytes(const Vec (&rounded)[4], int8_t* to) {
  TS_EVERY_REGISTER {
    const int16x8_t first = low_words(rounded[i].v[0], rounded[i].v[1]), second = low_words(rounded[i].v[2], rounded[i].v[3]);
    vst1q_s8(to + 16 * i, vmovn_high_s16(vmovn_s16(first), second));
  }
}
TS_VECTOR_INLINE Ints store_digits(const Vec (&rounded)[4], int8_t* high, int8_t* low) {
  Ints sum = set1(0);
  TS_EVERY_REGISTER {
    const int16x8_t first = low_words(rounded[i].v[0], rounded[i].v[1]), second = low_words(rounded[i].v[2], rounded[i].v[3]);
    const int16x8_t mask = vdupq_n_s16(127);
    vst1q_s8(high + 16 * i, vmovn_high_s16(vmovn_s16(vshrq_n_s16(first, 7)), vshrq_n_s16(second, 7)));
    vst1q_s8(low + 16 * i, vmovn_high_s16(vmovn_s16(vandq_s16(first, mask)), vandq_s16(second, mask)));
    sum.v[i] = vpadalq_s16(vpaddlq_s16(first), second);
  }
  return sum;
}
#undef TS_EACH_INT
#undef TS_EVERY_REGISTER

}  // namespace twostroke
