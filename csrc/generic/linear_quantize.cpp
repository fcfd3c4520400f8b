// Rows of activations to int8, group by group: the same bits as ops/linear.py quantize_rows at every level.
// Knows: the rounding rule. Must not know: weights, threads.
#include "twostroke/linear.h"

namespace twostroke {
namespace {

// Largest |x| by its bits: a NaN, whose bits are above infinity's, wins and so reaches the scale.
float largest_magnitude(const float* x, int64_t count) {
  uint32_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    best = bits > best ? bits : best;
  }
  float value;
  memcpy(&value, &best, 4);
  return value;
}

// q (64) = round half to even of x * inverse, zeros from `count` on. |x * inverse| < 2^22, so adding 1.5 * 2^23 leaves the rounded
// integer in the low mantissa bits.
void round_step(const float* x, int64_t count, float inverse, int8_t* q) {
  for (int64_t i = 0; i < count; ++i) {
    q[i] = static_cast<int8_t>(static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u));
  }
  if (count < kStep) memset(q + count, 0, static_cast<size_t>(kStep - count));
}

// -8 * sum of each 16 of q (64) into sub_corrections; returns the sum of all.
int32_t correct(const int8_t* q, int32_t* sub_corrections) {
  int32_t total = 0;
  for (int64_t n = 0; n < kStep / kSubgroup; ++n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSubgroup; ++i) sum += q[n * kSubgroup + i];
    sub_corrections[n] = -8 * sum;
    total += sum;
  }
  return total;
}

int64_t between(int64_t low, int64_t value, int64_t high) { return value < low ? low : value > high ? high : value; }

}  // namespace

void quantize_row(const float* x, int64_t columns, int64_t group, int8_t* q, int64_t step_stride, float* scales,
                  int32_t* corrections, int32_t* sub_corrections) {
  constexpr float kFloor = 0x1p-120f;  // below it 127 / amax would overflow: such a group counts as zeros
  constexpr float kLargest = 0x1.fffffep127f;
  for (int64_t begin = 0; begin < columns; begin += group) {
    const int64_t end = columns - begin < group ? columns : begin + group;
    const float amax = largest_magnitude(x + begin, end - begin);
    const bool usable = amax >= kFloor && amax <= kLargest;
    const float inverse = usable ? 127.0f / amax : 0.0f;
    int32_t sum = 0;
    for (int64_t k = begin; k < end; k += kStep, q += step_stride, sub_corrections += kStep / kSubgroup) {
      round_step(x + k, usable ? between(0, end - k, kStep) : 0, inverse, q);
      sum += correct(q, sub_corrections);
    }
    *scales++ = amax / 127.0f;
    *corrections++ = -128 * sum;
  }
}

}  // namespace twostroke
