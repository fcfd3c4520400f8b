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

// q = round half to even of x * inverse; returns the sum of q. |x * inverse| < 2^22, so adding 1.5 * 2^23 leaves the
// rounded integer in the low mantissa bits.
int32_t round_group(const float* x, int64_t count, float inverse, int8_t* q) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t n = static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u);
    q[i] = static_cast<int8_t>(n);
    sum += n;
  }
  return sum;
}

}  // namespace

void quantize_row(const float* x, int64_t columns, int64_t group, int32_t offset, int8_t* q, float* scales,
                  int32_t* corrections) {
  constexpr float kFloor = 0x1p-120f;  // below it 127 / amax would overflow: such a group counts as zeros
  constexpr float kLargest = 0x1.fffffep127f;
  for (int64_t begin = 0; begin < columns; begin += group, q += group) {
    const int64_t count = columns - begin < group ? columns - begin : group;
    const float amax = largest_magnitude(x + begin, count);
    int32_t sum = 0;
    if (amax >= kFloor && amax <= kLargest) {
      sum = round_group(x + begin, count, 127.0f / amax, q);
      memset(q + count, 0, static_cast<size_t>(group - count));
    } else {
      memset(q, 0, static_cast<size_t>(group));
    }
    *scales++ = amax / 127.0f;
    *corrections++ = -offset * sum;
  }
}

}  // namespace twostroke
