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

// q = round half to even of x * inverse, zeros from `count` to `width`. |x * inverse| < 2^22, so adding 1.5 * 2^23 leaves the
// rounded integer in the low mantissa bits.
void round_group(const float* x, int64_t count, int64_t width, float inverse, int8_t* q) {
  for (int64_t i = 0; i < count; ++i) {
    q[i] = static_cast<int8_t>(static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u));
  }
  memset(q + count, 0, static_cast<size_t>(width - count));
}

// -8 * sum of each 16 into sub_corrections; returns -128 * the sum of all.
int32_t correct(const int8_t* q, int64_t width, int32_t* sub_corrections) {
  int32_t total = 0;
  for (int64_t n = 0; n < width / kSubgroup; ++n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSubgroup; ++i) sum += q[n * kSubgroup + i];
    sub_corrections[n] = -8 * sum;
    total += sum;
  }
  return -128 * total;
}

}  // namespace

void quantize_row(const float* x, int64_t columns, int64_t group, int8_t* q, float* scales, int32_t* corrections,
                  int32_t* sub_corrections) {
  constexpr float kFloor = 0x1p-120f;  // below it 127 / amax would overflow: such a group counts as zeros
  constexpr float kLargest = 0x1.fffffep127f;
  const int64_t padded = round_up(columns, kStep);
  for (int64_t begin = 0; begin < padded; begin += group) {
    const int64_t width = padded - begin < group ? padded - begin : group;
    const int64_t count = columns - begin < width ? columns - begin : width;
    const float amax = largest_magnitude(x + begin, count);
    const bool usable = amax >= kFloor && amax <= kLargest;
    round_group(x + begin, usable ? count : 0, width, usable ? 127.0f / amax : 0.0f, q + begin);
    *scales++ = amax / 127.0f;
    *corrections++ = correct(q + begin, width, sub_corrections + begin / kSubgroup);
  }
}

}  // namespace twostroke
