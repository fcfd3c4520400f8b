// Rows of activations to int8, group by group: the same bits as ops/linear.py quantize_rows at every level.
// Knows: the rounding rule. Must not know: weights, threads.
#include "twostroke/linear.h"
#include "twostroke/quantize_step.h"

namespace twostroke {
namespace {

// Up to 64 activations, padded with zeros, so that every step is a whole one.
struct Padded {
  alignas(64) float x[kStep];
  Padded(const float* from, int64_t count) {
    memcpy(x, from, static_cast<size_t>(count) * 4);
    memset(x + count, 0, static_cast<size_t>(kStep - count) * 4);
  }
};

float largest_magnitude(const float* x, int64_t count) {
  uint32_t best = 0;
  for (int64_t k = 0; k < count; k += kStep) {
    const uint32_t bits = count - k < kStep ? largest_bits(Padded(x + k, count - k).x) : largest_bits(x + k);
    best = bits > best ? bits : best;
  }
  float value;
  memcpy(&value, &best, 4);
  return value;
}

}  // namespace

#if !defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_NEON)
uint32_t largest_bits(const float* x) {
  uint32_t best = 0;
  for (int64_t i = 0; i < kStep; ++i) {
    const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    best = bits > best ? bits : best;
  }
  return best;
}

// |x * inverse| < 2^22, so adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits.
int32_t quantize_step(const float* x, float inverse, int8_t* q, int32_t* sub_corrections) {
  for (int64_t i = 0; i < kStep; ++i) {
    q[i] = static_cast<int8_t>(static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u));
  }
  int32_t total = 0;
  for (int64_t n = 0; n < kStep / kSubgroup; ++n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSubgroup; ++i) sum += q[n * kSubgroup + i];
    sub_corrections[n] = -8 * sum;
    total += sum;
  }
  return total;
}
#endif

void quantize_row(const float* x, int64_t columns, int64_t group, QuantizedRow to) {
  const Padded zeros(x, 0);
  int32_t unasked[kStep / kSubgroup];
  for (int64_t begin = 0; begin < columns; begin += group) {
    const int64_t end = columns - begin < group ? columns : begin + group;
    const float amax = largest_magnitude(x + begin, end - begin);
    const bool usable = amax >= kLeastMagnitude && amax <= kMostMagnitude;
    const float inverse = usable ? 127.0f / amax : 0.0f;
    int32_t sum = 0;
    int8_t* q = to.q;
    const int64_t step = to.sub_corrections == nullptr ? 0 : kStep / kSubgroup;
    int32_t* sub_corrections = to.sub_corrections == nullptr ? unasked : to.sub_corrections;
    for (int64_t k = begin; k < end; k += kStep, q += kStep, sub_corrections += step) {
      if (!usable) {
        sum += quantize_step(zeros.x, 0.0f, q, sub_corrections);
      } else if (end - k < kStep) {
        sum += quantize_step(Padded(x + k, end - k).x, inverse, q, sub_corrections);
      } else {
        sum += quantize_step(x + k, inverse, q, sub_corrections);
      }
    }
    *to.scales = amax / 127.0f;
    *to.corrections = -128 * sum;
    if (to.sub_corrections != nullptr) to.sub_corrections = sub_corrections;
    to.q += to.group_stride;
    to.scales += to.pair_stride;
    to.corrections += to.pair_stride;
  }
}

}  // namespace twostroke
