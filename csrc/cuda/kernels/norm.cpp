// rms_norm and layer_norm, with a block for each row; head_layer_norm, with a block for each head; and head_norm, the rms_norm of many
// short vectors, with sixteen threads for each. A sum is sixteen partial sums and then one fixed tree, as at the CPU's vector levels, so
// the bits are the same.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

static_assert(kNarrowThreads == kLanes, "a thread of head_norm is a lane");

constexpr int32_t kHeldWeights = 8;  // weights of a thread that are loaded before the sum is known

struct HeldWeights {
  float v[kHeldWeights];
  const float* all;

  TS_MEMBER_INLINE HeldWeights(const float* weights, int32_t count) : all(weights) {
    TS_EVERY_LANE
    for (int32_t j = 0; j < kHeldWeights; ++j) {
      const int32_t i = thread_index() + j * threads();
      v[j] = i < count ? weights[i] : 0.0f;
    }
  }
  // Calls each(i, weight) for every element of this thread.
  template <class Each>
  TS_MEMBER_INLINE void each(int32_t count, const Each& each) const {
    TS_EVERY_LANE
    for (int32_t j = 0; j < kHeldWeights; ++j) {
      const int32_t i = thread_index() + j * threads();
      if (i < count) each(i, v[j]);
    }
    for (int32_t i = thread_index() + kHeldWeights * threads(); i < count; i += threads()) each(i, all[i]);
  }
};

// x and out may be the same memory. One thread reads and writes an element, or a barrier lies between the two.
TS_KERNEL_AHEAD(rms_norm, NormArgs) {
  const float* in = args.x + block_index() * args.x_stride;
  float* out = args.out + block_index() * args.out_stride;
  const int32_t count = static_cast<int32_t>(args.columns);
  const HeldWeights weights(args.weight, count);
  wait_for_earlier();
  const float squares = sum_by_lanes(count, [&](int32_t i) { return in[i]; }, AddSquare());
  const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + args.eps);
  const bool held = count <= kLanePiece;
  weights.each(count, [&](int32_t i, float weight) { out[i] = (held ? static_cast<float>(lane_row[i]) : in[i]) * scale * weight; });
}

// bias: NULL for none.
TS_DEVICE_INLINE void layer_norm_vector(int32_t count, float eps, const float* in, float* out, const float* weight_at, const float* bias) {
  const HeldWeights weights(weight_at, count);
  const float mean = sum_by_lanes(count, [&](int32_t i) { return in[i]; }, AddValue()) / static_cast<float>(count);
  const float squares = sum_by_lanes(count, [&](int32_t i) { return in[i] - mean; }, AddSquare());
  const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + eps);
  const bool held = count <= kLanePiece;
  weights.each(count, [&](int32_t i, float weight) {
    const float distance = held ? static_cast<float>(lane_row[i]) : in[i] - mean;
    out[i] = fma(distance * scale, weight, bias == nullptr ? 0.0f : bias[i]);
  });
}

TS_KERNEL(layer_norm, ts_layer_norm_args) {
  const float* in = args.x.data + block_index() * args.x.stride;
  float* out = args.out.data + block_index() * args.out.stride;
  layer_norm_vector(static_cast<int32_t>(width_of(args.x)), static_cast<float>(args.eps), in, out, args.weight.data, args.bias.data);
}

// A block has one vector of a row. There is one vector of weights for all heads, or one for each.
TS_KERNEL(head_layer_norm, ts_head_layer_norm_args) {
  const uint32_t heads = static_cast<uint32_t>(args.out.heads), block = static_cast<uint32_t>(block_index()), head = block % heads;
  const int64_t dim = args.out.dim, weights = args.weight.length == dim ? 0 : head * dim;
  float* x = args.out.data + block / heads * args.out.stride + head * dim;
  const float* bias = args.bias.data == nullptr ? nullptr : args.bias.data + weights;
  layer_norm_vector(static_cast<int32_t>(dim), static_cast<float>(args.eps), x, x, args.weight.data + weights, bias);
}

// The vectors have up to kNarrow elements, which their threads keep in registers.
TS_KERNEL(head_norm, NormArgs) {
  const int32_t lane = thread_index() % kLanes, count = static_cast<int32_t>(args.columns);
  const uint32_t vectors = static_cast<uint32_t>(args.vectors), all = static_cast<uint32_t>(args.rows) * vectors;
  const uint32_t vector = static_cast<uint32_t>(block_index()) * static_cast<uint32_t>(threads() / kLanes) + static_cast<uint32_t>(thread_index() / kLanes);
  const uint32_t row = vector / vectors;
  const int64_t at = static_cast<int64_t>(vector % vectors) * count;
  const float* in = args.x + row * args.x_stride + at;
  float* out = args.out + row * args.out_stride + at;
  const int32_t own = vector < all ? count : 0;
  float x[kNarrow / kLanes], squares = 0.0f;
  TS_EVERY_LANE
  for (int32_t j = 0; j < kNarrow / kLanes; ++j) x[j] = lane + j * kLanes < own ? in[lane + j * kLanes] : 0.0f;
  TS_EVERY_LANE
  for (int32_t j = 0; j < kNarrow / kLanes; ++j)
    if (lane + j * kLanes < own) squares = fma(x[j], x[j], squares);
  const float scale = 1.0f / __builtin_sqrtf(sum_of_half_warp(squares) / static_cast<float>(count) + args.eps);
  TS_EVERY_LANE
  for (int32_t j = 0; j < kNarrow / kLanes; ++j)
    if (lane + j * kLanes < own) out[lane + j * kLanes] = x[j] * scale * args.weight[lane + j * kLanes];
}

}  // namespace cuda
}  // namespace twostroke
