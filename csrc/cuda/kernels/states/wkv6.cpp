// wkv6: the scan of RWKV-6. A block has one head of one sequence; a thread has one column of its state.
#include "twostroke/cuda/rows/wkv.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, wkv6_left, kMostHeadRows);
TS_SHARED(float, wkv6_key, kMostHeadRows);
TS_SHARED(float, wkv6_read, kMostHeadRows);

// All threads of the block call it, those after the last column too. width: at most the number of threads.
template <class Column>
TS_DEVICE_INLINE void go_through_wkv6(const WkvArgs& args, int64_t head, const Span& span) {
  const int64_t width = args.width, at = head * width, own = thread_index();
  const bool is_one = own < width;
  Column column(span.state + head * width * width + (is_one ? own : 0), is_one ? width : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    float* out = args.out + row * args.out_stride + at;
    if (is_one) {
      const float raw = args.w[row * args.w_stride + at + own];
      wkv6_left[own] = exp(0.0f - exp(raw)) + nan_unless_finite(raw);
      wkv6_key[own] = args.k[row * args.k_stride + at + own];
      wkv6_read[own] = args.r[row * args.r_stride + at + own];
    }
    barrier();
    if (is_one) {
      const float v = args.v[row * args.v_stride + at + own];
      float sum = 0.0f;
      column.change([&](int64_t j, float& number) {
        const float made = wkv6_key[j] * v;
        sum = fma(wkv6_read[j], fma(args.first[at + j], made, number), sum);
        number = fma(wkv6_left[j], number, made);
      });
      out[own] = sum;
    }
    norm_of_head(out, args.weight + at, args.bias + at, args.eps, width);
  }
  if (is_one) column.end();
}

TS_KERNEL(wkv6, WkvArgs) {
  const Span span = span_of(args.state, block_index() / args.heads);
  if (args.width * threads() <= kKeptNumbers) {
    go_through_wkv6<KeptColumn>(args, block_index() % args.heads, span);
  } else {
    go_through_wkv6<LongColumn>(args, block_index() % args.heads, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
