// Rounds rows of activations to int8, group by group. At every level the bits are those of quantize_rows in ops/products/linear.py.
#include "twostroke/products/linear.h"
#include "twostroke/products/quantize_steps.h"
#include "twostroke/products/rotate.h"

namespace twostroke {
namespace {

// Rounds one group: whole steps directly, and the columns that are left as one more step, filled up with zeros.
struct Steps {
  const float* x;
  int64_t whole, left;
  alignas(64) float padded[kStep];

  Steps(const float* from, int64_t columns) : x(from), whole(columns / kStep), left(columns % kStep) {
    if (left == 0) return;
    memset(padded, 0, sizeof(padded));
    memcpy(padded, from + whole * kStep, static_cast<size_t>(left) * 4);
  }
  int64_t all() const { return whole + (left > 0); }
};

float largest_magnitude(const Steps& steps) {
  const uint32_t most = largest_bits(steps.x, steps.whole), last = steps.left == 0 ? 0 : largest_bits(steps.padded, 1);
  const uint32_t bits = last > most ? last : most;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

int32_t quantize_all(const Steps& steps, float inverse, int8_t* q, int32_t* sub_corrections) {
  const int32_t sum = quantize_steps(steps.x, steps.whole, inverse, q, sub_corrections);
  if (steps.left == 0) return sum;
  return sum + quantize_steps(steps.padded, 1, inverse, q + steps.whole * kStep, sub_corrections + steps.whole * kStep / kSubgroup);
}

// Rounds kFineColumns columns, as quantize_steps does with 64. The compiler finds the vector instructions. Returns the largest magnitude.
float quantize_fine(const float* x, int8_t* q, int32_t* sub_corrections) {
  uint32_t most = 0;
  for (int64_t i = 0; i < kFineColumns; ++i) {
    const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  float amax;
  memcpy(&amax, &most, 4);
  if (!(amax >= kLeastMagnitude && amax <= kMostMagnitude)) {
    memset(q, 0, kFineColumns);
    for (int64_t n = 0; n < kFineColumns / kSubgroup; ++n) sub_corrections[n] = 0;
    return amax;
  }
  const float inverse = 127.0f / amax;
  int32_t wholes[kFineColumns];
  for (int64_t i = 0; i < kFineColumns; ++i) wholes[i] = static_cast<int32_t>(float_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u);
  for (int64_t i = 0; i < kFineColumns; ++i) q[i] = static_cast<int8_t>(wholes[i]);
  for (int64_t n = 0; n < kFineColumns / kSubgroup; ++n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSubgroup; ++i) sum += wholes[n * kSubgroup + i];
    sub_corrections[n] = -8 * sum;
  }
  return amax;
}

// Rounds up to whole steps, because products read whole steps. The groups of a fine row need no corrections.
void quantize_fine_row(const float* x, int64_t columns, QuantizedRow to) {
  for (int64_t begin = 0; begin < round_up(columns, kStep); begin += kFineColumns) {
    const int64_t left = columns - begin;
    float padded[kFineColumns] = {};
    if (left > 0 && left < kFineColumns) memcpy(padded, x + begin, static_cast<size_t>(left) * 4);
    *to.scales = quantize_fine(left < kFineColumns ? padded : x + begin, to.q, to.sub_corrections) / 127.0f;
    to.q += to.group_stride;
    to.scales += to.pair_stride;
    to.sub_corrections += kFineColumns / kSubgroup;
  }
}

}  // namespace

float round_group(const float* x, int64_t columns, int8_t* q) {
  int32_t unasked[kMaxGroup / kSubgroup];
  alignas(64) int8_t codes[kMaxGroup];
  const Steps steps(x, columns);
  const float amax = largest_magnitude(steps);
  if (amax >= kLeastMagnitude && amax <= kMostMagnitude) {
    quantize_all(steps, 127.0f / amax, codes, unasked);
    memcpy(q, codes, static_cast<size_t>(columns));
  } else {
    memset(q, 0, static_cast<size_t>(columns));
  }
  return amax;
}

// The element of the largest magnitude has the code 127 or -127 and must become amax itself, because amax / 127 * 127 may be another
// number. For any other code, code * (amax / 127) * (127 / amax) is within a few units in the last place of the code, and rounds to it.
void unround_group(const int8_t* q, float amax, int64_t columns, float* x) {
  if (!(amax >= kLeastMagnitude && amax <= kMostMagnitude)) {
    memset(x, 0, static_cast<size_t>(columns) * 4);
    x[0] = amax;
    return;
  }
  const float scale = amax / 127.0f;
  for (int64_t i = 0; i < columns; ++i) {
    const float value = static_cast<float>(q[i]) * scale;
    x[i] = q[i] == 127 ? amax : q[i] == -127 ? -amax : value;
  }
}

void quantize_row(const float* x, int64_t columns, Rounding8 how, QuantizedRow to) {
  const int64_t group = how.group;
  if (group == kFineColumns) return quantize_fine_row(x, columns, to);
  int32_t unasked[kMaxGroup / kSubgroup];
  alignas(64) float rotated[kMaxGroup];
  for (int64_t begin = 0; begin < columns; begin += group) {
    const int64_t width = columns - begin < group ? columns - begin : group;
    if (how.rotated != 0) rotate_columns(x + begin, width, rotated);
    const Steps steps = how.rotated != 0 ? Steps(rotated, round_up(width, kStep)) : Steps(x + begin, width);
    const float amax = largest_magnitude(steps);
    const int64_t subgroups = steps.all() * kStep / kSubgroup;
    int32_t* sub_corrections = to.sub_corrections == nullptr ? unasked : to.sub_corrections;
    int32_t sum = 0;
    if (amax >= kLeastMagnitude && amax <= kMostMagnitude) {
      sum = quantize_all(steps, 127.0f / amax, to.q, sub_corrections);
    } else {
      memset(to.q, 0, static_cast<size_t>(steps.all() * kStep));
      memset(sub_corrections, 0, static_cast<size_t>(subgroups) * 4);
    }
    *to.scales = amax / 127.0f;
    *to.corrections = -128 * sum;
    if (to.sub_corrections != nullptr) to.sub_corrections += subgroups;
    to.q += to.group_stride;
    to.scales += to.pair_stride;
    to.corrections += to.pair_stride;
  }
}

}  // namespace twostroke
