// gated_norm: a block a group of a row. Sixteen partial sums of squares, then one fixed tree.
// Knows: arithmetic.h. Must not know: models.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, gated_lanes, kLanes);

// out may be x or gate: an element is read and written by one thread, or before and behind a barrier.
TS_KERNEL(gated_norm, GatedNormArgs) {
  const int64_t row = block_index() / args.groups, group = block_index() % args.groups, first = group * args.width;
  const float *x = args.x + row * args.x_stride + first, *gate = args.gate + row * args.gate_stride + first;
  const float* weight = args.weight + group * args.weight_step;
  float* out = args.out + row * args.out_stride + first;
  const auto normed = [&](int64_t i) { return args.gate_first != 0 ? x[i] * activated(args.activation, gate[i]) : x[i]; };
  const int32_t thread = thread_index();
  if (thread < kLanes) {
    float squares = 0.0f;
    for (int64_t i = thread; i < args.width; i += kLanes) {
      const float v = normed(i);
      squares = fma(v, v, squares);
    }
    gated_lanes[thread] = squares;
  }
  barrier();
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = gated_lanes[i];
  const float scale = 1.0f / __builtin_sqrtf(sum_tree(lanes) / static_cast<float>(args.width) + args.eps);
  for (int64_t i = thread; i < args.width; i += threads()) {
    const float scaled = normed(i) * scale * weight[i];
    out[i] = args.gate_first != 0 ? scaled : scaled * activated(args.activation, gate[i]);
  }
}

}  // namespace cuda
}  // namespace twostroke
