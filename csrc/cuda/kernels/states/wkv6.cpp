// wkv6: the scan of RWKV-6. A block has one head of one sequence; a thread has one column of its state.
#include "twostroke/cuda/rows/wkv.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, wkv6_left, kMostHeadRows);
TS_SHARED(float, wkv6_key, kMostHeadRows);
TS_SHARED(float, wkv6_read, kMostHeadRows);

// All threads of the block call it, those after the last column too. width: at most the number of threads.
template <class Column>
TS_DEVICE_INLINE void go_through_wkv6(const ts_wkv6_args& args, int64_t head, const Span& span) {
  const int64_t width = args.v.dim, at = head * width, own = thread_index();
  const bool is_one = own < width;
  Column column(span.state + head * width * width + (is_one ? own : 0), is_one ? width : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    float* out = args.out.data + row * args.out.stride + at;
    if (is_one) {
      const float raw = args.w.data[row * args.w.stride + at + own];
      wkv6_left[own] = exp(0.0f - exp(raw)) + nan_unless_finite(raw);
      wkv6_key[own] = args.k.data[row * args.k.stride + at + own];
      wkv6_read[own] = args.r.data[row * args.r.stride + at + own];
    }
    barrier();
    if (is_one) {
      const float v = args.v.data[row * args.v.stride + at + own];
      float sum = 0.0f;
      column.change([&](int64_t j, float& number) {
        const float made = wkv6_key[j] * v;
        sum = fma(wkv6_read[j], fma(args.first.data[at + j], made, number), sum);
        number = fma(wkv6_left[j], number, made);
      });
      out[own] = sum;
    }
    norm_of_head(out, args.weight.data + at, args.bias.data + at, static_cast<float>(args.eps), width);
  }
  if (is_one) column.end();
}

TS_KERNEL(wkv6, ts_wkv6_args) {
  const Span span = span_of(args, block_index() / args.v.heads);
  if (args.v.dim * threads() <= kKeptNumbers) {
    go_through_wkv6<KeptColumn>(args, block_index() % args.v.heads, span);
  } else {
    go_through_wkv6<LongColumn>(args, block_index() % args.v.heads, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
