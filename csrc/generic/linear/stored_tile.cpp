// Products with a group of stored codes in plain C++, for levels without code of their own.
#if !defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_AVX2)
#include "twostroke/products/stored.h"

namespace twostroke {
namespace {

// Adds the sum over j of weights[c][j] * q[j] to integers[c], for 4 k of 64 columns.
void dot_quads(const uint8_t* weights, const int8_t* q, int32_t* integers) {
  const int32_t q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
  for (int64_t c = 0; c < kPanel; ++c) {
    const uint8_t* w = weights + 4 * c;
    integers[c] += w[0] * q0 + w[1] * q1 + w[2] * q2 + w[3] * q3;
  }
}

// Multiplies row `r` of x. Where a scale of the activations belongs to the whole group, steps are multiplied by 1, which changes no bit.
void one_row(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t r, float* sums) {
  const int8_t* q = x.q + r * x.q_stride + group.first;
  const int32_t* corrections = x.sub_corrections + r * x.subgroups + group.first / kSubgroup;
  float totals[kPanel] = {};
  const int64_t parts = weights.sub / kSubgroup;
  for (int64_t s = 0; s < group.columns / weights.sub; ++s) {
    const int32_t eights = eights_of(corrections + s * parts, parts);
    int32_t integers[kPanel];
    for (int64_t c = 0; c < kPanel; ++c) integers[c] = 16 * eights;
    for (int64_t k = s * weights.sub; k < (s + 1) * weights.sub; k += 4) dot_quads(weights.bytes + k * kPanel, q + k, integers);
    const float* steps = weights.steps + s * kPanel;
    const float fine = weights.fine ? fine_scales(x, group, s * weights.sub)[r] : 1.0f;
    for (int64_t c = 0; c < kPanel; ++c) totals[c] += static_cast<float>(integers[c]) * (steps[c] * fine);
    if (weights.minima == nullptr) continue;
    const float sum = static_cast<float>(eights / -8) * fine;
    for (int64_t c = 0; c < kPanel; ++c) totals[c] -= weights.minima[s * kPanel + c] * sum;
  }
  const float scale = weights.fine ? 1.0f : group_scales(x, group)[r];
  for (int64_t c = 0; c < kPanel; ++c) sums[c] += totals[c] * scale;
}

}  // namespace

void multiply_stored(const StoredGroup& weights, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  for (int64_t r = 0; r < rows; ++r) one_row(weights, group, x, r, sums + r * kPanel);
}

}  // namespace twostroke
#endif
