// The part of quantize_row that works on whole vectors, for ARMv8-A. It gives the same bits as generic/linear/linear_quantize.cpp.
#if defined(TS_LEVEL_NEON)
#include "twostroke/neon/linear.h"
#include "twostroke/products/quantize_steps.h"

namespace twostroke {
namespace {

// Returns four whole numbers, each of magnitude at most 127.
TS_INLINE int32x4_t whole_numbers(const float* x, float32x4_t inverse) {
  const float32x4_t rounded = vaddq_f32(vmulq_f32(vld1q_f32(x), inverse), vdupq_n_f32(12582912.0f));
  return vsubq_s32(vreinterpretq_s32_f32(rounded), vdupq_n_s32(0x4b400000));
}

}  // namespace

uint32_t vector_largest_bits(const float* x, int64_t steps) {
  uint32x4_t best = vdupq_n_u32(0);
  for (const float* end = x + steps * kStep; x < end; x += kStep) {
    TS_UNROLL
    for (int i = 0; i < 16; ++i) best = vmaxq_u32(best, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + 4 * i)), vdupq_n_u32(0x7fffffffu)));
  }
  return vmaxvq_u32(best);
}

int32_t vector_quantize_steps(const float* x, int64_t steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  const float32x4_t scale = vdupq_n_f32(inverse);
  int32_t total = 0;
  for (int64_t n = 0; n < steps * kStep / kSubgroup; ++n, x += kSubgroup, q += kSubgroup) {
    const int16x8_t low = vcombine_s16(vmovn_s32(whole_numbers(x, scale)), vmovn_s32(whole_numbers(x + 4, scale)));
    const int16x8_t high = vcombine_s16(vmovn_s32(whole_numbers(x + 8, scale)), vmovn_s32(whole_numbers(x + 12, scale)));
    const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
    vst1q_s8(q, bytes);
    const int32_t sum = vaddlvq_s8(bytes);
    sub_corrections[n] = -8 * sum;
    total += sum;
  }
  return total;
}

}  // namespace twostroke
#endif
