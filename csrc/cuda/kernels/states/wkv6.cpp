// wkv6: RWKV-6's scan, a block a head of one sequence, a thread a column of its state.
// Knows: wkv.h. Must not know: models.
#include "twostroke/cuda/wkv.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, wkv6_left, kMostHeadRows);

TS_KERNEL(wkv6, WkvArgs) {
  const int64_t head = block_index() % args.heads, width = args.width, at = head * width;
  const Span span = span_of(args.state, block_index() / args.heads);
  float* state = span.state + head * width * width;
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float *r = args.r + row * args.r_stride + at, *k = args.k + row * args.k_stride + at, *v = args.v + row * args.v_stride + at;
    float* out = args.out + row * args.out_stride + at;
    for (int64_t i = thread_index(); i < width; i += threads()) {
      const float raw = args.w[row * args.w_stride + at + i];
      wkv6_left[i] = exp(0.0f - exp(raw)) + nan_unless_finite(raw);
    }
    barrier();
    for (int64_t column = thread_index(); column < width; column += threads()) {
      float sum = 0.0f;
      for (int64_t j = 0; j < width; ++j) {
        float* here = state + j * width + column;
        const float was = *here, made = k[j] * v[column];
        sum = fma(r[j], fma(args.first[at + j], made, was), sum);
        *here = fma(wkv6_left[j], was, made);
      }
      out[column] = sum;
    }
    norm_of_head(out, args.weight + at, args.bias + at, args.eps, width);
  }
}

}  // namespace cuda
}  // namespace twostroke
