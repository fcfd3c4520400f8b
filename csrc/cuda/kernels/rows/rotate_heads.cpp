// rotate_heads: multiplies each head's vector by Hadamard matrices. A block has one head.
#include "twostroke/cuda/machine/block.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kLargestBlock = 256;
TS_SHARED(float, rotated_head, kMostRotatedDims);

TS_KERNEL(rotate_heads, ts_rotate_heads_args) {
  const int64_t row = block_index() / args.out.heads, head = block_index() % args.out.heads;
  const int32_t dim = static_cast<int32_t>(args.out.dim);
  const float* x = args.x.data + row * args.x.stride + head * dim;
  float* out = args.out.data + row * args.out.stride + head * dim;
  for (int32_t i = thread_index(); i < dim; i += threads()) rotated_head[i] = x[i];
  barrier();
  // The order of an element's block: the largest power of two that fits from the block's beginning on.
  const auto order_of = [&](int32_t i) {
    int32_t first = i / kLargestBlock * kLargestBlock, order = kLargestBlock;
    while (order > dim - first || i >= first + order) {
      if (order <= dim - first) first += order;
      else order /= 2;
    }
    return order;
  };
  for (int32_t half = 1; half < kLargestBlock; half *= 2) {
    for (int32_t i = thread_index(); i < dim; i += threads()) {
      if ((i & half) != 0 || order_of(i) <= half) continue;
      const float a = rotated_head[i], b = rotated_head[i + half];
      rotated_head[i] = a + b;
      rotated_head[i + half] = a - b;
    }
    barrier();
  }
  for (int32_t i = thread_index(); i < dim; i += threads()) {
    out[i] = args.inverse != 0 ? rotated_head[i] * (1.0f / static_cast<float>(order_of(i))) : rotated_head[i];
  }
}

}  // namespace cuda
}  // namespace twostroke
