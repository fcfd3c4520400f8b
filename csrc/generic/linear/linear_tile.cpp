// The register tile of ts_linear in plain C++. The vector levels are tested against it.
#if defined(TS_LEVEL_GENERIC)
#include "twostroke/products/linear.h"

namespace twostroke {
namespace {

void fold(const int32_t* integers, float x_scale, const uint8_t* scales, float* sums) {
  for (int64_t c = 0; c < kPanel; ++c) {
    uint16_t bits;
    memcpy(&bits, scales + 2 * c, 2);
    sums[c] += static_cast<float>(integers[c]) * (x_scale * bf16_to_f32(bits));
  }
}

// Adds the sum over j of weights[c][j] * q[j] to integers[c], for 4 k of 64 columns.
void dot_quads(const uint8_t* weights, const int8_t* q, int32_t* integers) {
  const int32_t q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
  for (int64_t c = 0; c < kPanel; ++c) {
    const uint8_t* w = weights + 4 * c;
    integers[c] += w[0] * q0 + w[1] * q1 + w[2] * q2 + w[3] * q3;
  }
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, FetchByTiles&, float* sums) {
  int32_t integers[kRows][kPanel];
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) integers[r][c] = x.corrections[group.index * x.pair_stride + r];
  }
  for (int64_t k = group.first; k < group.first + group.columns; k += 4, data += 4 * kPanel) {
    for (int r = 0; r < kRows; ++r) dot_quads(data, x.q + r * x.q_stride + k, integers[r]);
  }
  for (int r = 0; r < kRows; ++r) fold(integers[r], x.scales[group.index * x.pair_stride + r], group.scales, sums + r * kPanel);
}

struct F32Weights {
  static float at(const uint8_t* data, int64_t columns_k, int64_t c) {
    float value;
    memcpy(&value, data + (columns_k * kPanel + c) * 4, 4);
    return value;
  }
};

struct Bf16Weights {
  static float at(const uint8_t* data, int64_t k, int64_t c) {
    uint16_t bits;
    memcpy(&bits, data + ((k / 2 * kPanel + c) * 2 + k % 2) * 2, 2);
    return bf16_to_f32(bits);
  }
};

template <class Weights, int kRows>
void float_tile(const Panel& panel, const TileRows& x, float* sums) {
  memset(sums, 0, sizeof(float) * kRows * kPanel);
  for (int64_t k = 0; k < panel.columns; ++k) {
    float weights[kPanel];
    for (int64_t c = 0; c < kPanel; ++c) weights[c] = Weights::at(panel.data, k, c);
    for (int r = 0; r < kRows; ++r) {
      const float value = x.x[r * x.x_stride + k];
      for (int64_t c = 0; c < kPanel; ++c) sums[r * kPanel + c] += value * weights[c];
    }
  }
}

template <class Weights>
TileKernel kernel_of(int64_t rows) {
  constexpr TileKernel kernels[kTileRows] = {float_tile<Weights, 1>, float_tile<Weights, 2>, float_tile<Weights, 3>,
                                             float_tile<Weights, 4>};
  return kernels[rows - 1];
}

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) {
  return kind == TS_W_F32 ? kernel_of<F32Weights>(rows) : kernel_of<Bf16Weights>(rows);
}

GroupKernel int8_kernel(int64_t rows) {
  constexpr GroupKernel kernels[kTileRows] = {int8_group<1>, int8_group<2>, int8_group<3>, int8_group<4>};
  return kernels[rows - 1];
}

}  // namespace twostroke
#endif
