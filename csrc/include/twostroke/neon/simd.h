// Sixteen float32 lanes as four registers of ARMv8-A: the part of simd.h that depends on the instruction set.
#pragma once
#include <arm_neon.h>

#include "twostroke/lanes.h"

namespace twostroke {

struct Vec {
  float32x4_t v[4];
};
#define TS_EACH_REGISTER(expression) \
  Vec r;                             \
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; ++i) r.v[i] = (expression); \
  return r
// This keeps the compiler from loading through p before v is known. A value that is loaded too early takes a register from a sum.
TS_VECTOR_INLINE void load_after(const float** p, Vec* v) { __asm__("" : "+r"(*p), "+w"(v->v[0])); }
TS_VECTOR_INLINE Vec set1(float x) { TS_EACH_REGISTER(vdupq_n_f32(x)); }
TS_VECTOR_INLINE Vec zero() { return set1(0.0f); }
TS_VECTOR_INLINE Vec load(const float* p) { TS_EACH_REGISTER(vld1q_f32(p + 4 * i)); }
TS_VECTOR_INLINE void store(float* p, Vec a) {
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
TS_VECTOR_INLINE Vec load_bf16(const uint16_t* p) { TS_EACH_REGISTER(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }
TS_VECTOR_INLINE Vec load_int8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  Vec r;
  r.v[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
  r.v[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
  r.v[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
  r.v[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
  return r;
}
// Sixteen 32-bit words, each two bf16 numbers.
struct Words {
  uint32x4_t v[4];
};
TS_VECTOR_INLINE Words load_words(const void* p) {
  const uint8_t* at = static_cast<const uint8_t*>(p);
  Words r;
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; ++i) r.v[i] = vreinterpretq_u32_u8(vld1q_u8(at + 16 * i));
  return r;
}
TS_VECTOR_INLINE Vec low_halves(Words a) { TS_EACH_REGISTER(vreinterpretq_f32_u32(vshlq_n_u32(a.v[i], 16))); }
TS_VECTOR_INLINE Vec high_halves(Words a) { TS_EACH_REGISTER(vreinterpretq_f32_u32(vandq_u32(a.v[i], vdupq_n_u32(0xffff0000u)))); }
// Keeps lanes [begin, end) of a; the others become `fill`.
TS_VECTOR_INLINE Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const int32x4_t lanes = {0, 1, 2, 3}, first = vdupq_n_s32(begin), after = vdupq_n_s32(end);
  const float32x4_t other = vdupq_n_f32(fill);
  Vec r;
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; ++i) {
    const int32x4_t lane = vaddq_s32(lanes, vdupq_n_s32(4 * i));
    r.v[i] = vbslq_f32(vandq_u32(vcgeq_s32(lane, first), vcltq_s32(lane, after)), a.v[i], other);
  }
  return r;
}
TS_VECTOR_INLINE float32x4_t add_to_bits(float32x4_t a, int32x4_t bits) {
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), bits));
}
// a * 2^n. n is given as the float n + 1.5 * 2^23.
TS_VECTOR_INLINE Vec add_exponent(Vec a, Vec n) { TS_EACH_REGISTER(add_to_bits(a.v[i], vshlq_n_s32(vreinterpretq_s32_f32(n.v[i]), 23))); }
TS_VECTOR_INLINE Vec operator+(Vec a, Vec b) { TS_EACH_REGISTER(vaddq_f32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec operator-(Vec a, Vec b) { TS_EACH_REGISTER(vsubq_f32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec operator*(Vec a, Vec b) { TS_EACH_REGISTER(vmulq_f32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec operator/(Vec a, Vec b) { TS_EACH_REGISTER(vdivq_f32(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec fma(Vec a, Vec b, Vec c) { TS_EACH_REGISTER(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
// Returns the second operand where one is NaN or both are zero, as on x86. fmax does otherwise.
TS_VECTOR_INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
TS_VECTOR_INLINE float32x4_t smaller(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
TS_VECTOR_INLINE Vec sqrt(Vec a) { TS_EACH_REGISTER(vsqrtq_f32(a.v[i])); }
TS_VECTOR_INLINE Vec max(Vec a, Vec b) { TS_EACH_REGISTER(larger(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec min(Vec a, Vec b) { TS_EACH_REGISTER(smaller(a.v[i], b.v[i])); }
TS_VECTOR_INLINE Vec round_even(Vec a) { TS_EACH_REGISTER(vrndnq_f32(a.v[i])); }
TS_VECTOR_INLINE float32x4_t power_of_two(float32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
// a * 2^n, for a whole number n in [-126, 127].
TS_VECTOR_INLINE Vec scale_by_power(Vec a, Vec n) { TS_EACH_REGISTER(vmulq_f32(a.v[i], power_of_two(n.v[i]))); }
#undef TS_EACH_REGISTER

// The tree of simd.h: lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1.
TS_VECTOR_INLINE float reduce_add(Vec a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
TS_VECTOR_INLINE float reduce_max(Vec a) {
  const float32x4_t four = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
  const float32x2_t low = vget_low_f32(four), high = vget_high_f32(four);
  const float32x2_t two = vbsl_f32(vcgt_f32(low, high), low, high);
  return vget_lane_f32(two, 0) > vget_lane_f32(two, 1) ? vget_lane_f32(two, 0) : vget_lane_f32(two, 1);
}

}  // namespace twostroke
