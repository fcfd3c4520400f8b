// rms_norm (of rows and of heads) and layer_norm: a block a vector. Sixteen partial sums, then one fixed tree, as at the CPU's vector
// levels: the same bits.
// Knows: arithmetic.h. Must not know: models.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, norm_lanes, kLanes);

// Lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1. Every thread makes the same sum.
TS_DEVICE_INLINE float sum_of_lanes() {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = norm_lanes[i];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

struct Vector {
  const float* in;
  float* out;
};

TS_DEVICE_INLINE Vector vector_of(const NormArgs& args) {
  const int64_t row = block_index() / args.vectors, at = block_index() % args.vectors * args.columns;
  return {args.x + row * args.x_stride + at, args.out + row * args.out_stride + at};
}

// x and out may be the same memory: an element is read and written by one thread, or before and behind a barrier.
TS_KERNEL(rms_norm, NormArgs) {
  const Vector vector = vector_of(args);
  const int32_t thread = thread_index();
  if (thread < kLanes) {
    float squares = 0.0f;
    for (int64_t i = thread; i < args.columns; i += kLanes) squares = fma(vector.in[i], vector.in[i], squares);
    norm_lanes[thread] = squares;
  }
  barrier();
  const float scale = 1.0f / __builtin_sqrtf(sum_of_lanes() / static_cast<float>(args.columns) + args.eps);
  for (int64_t i = thread; i < args.columns; i += threads()) vector.out[i] = vector.in[i] * scale * args.weight[i];
}

TS_KERNEL(layer_norm, NormArgs) {
  const Vector vector = vector_of(args);
  const int32_t thread = thread_index();
  const float count = static_cast<float>(args.columns);
  if (thread < kLanes) {
    float sum = 0.0f;
    for (int64_t i = thread; i < args.columns; i += kLanes) sum = sum + vector.in[i];
    norm_lanes[thread] = sum;
  }
  barrier();
  const float mean = sum_of_lanes() / count;
  barrier();
  if (thread < kLanes) {
    float squares = 0.0f;
    for (int64_t i = thread; i < args.columns; i += kLanes) {
      const float distance = vector.in[i] - mean;
      squares = fma(distance, distance, squares);
    }
    norm_lanes[thread] = squares;
  }
  barrier();
  const float scale = 1.0f / __builtin_sqrtf(sum_of_lanes() / count + args.eps);
  for (int64_t i = thread; i < args.columns; i += threads()) {
    const float bias = args.bias == nullptr ? 0.0f : args.bias[i];
    vector.out[i] = fma((vector.in[i] - mean) * scale, args.weight[i], bias);
  }
}

}  // namespace cuda
}  // namespace twostroke
