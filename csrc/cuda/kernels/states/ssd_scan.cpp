// ssd_scan: Mamba-2's scan. A thread has one column of a head's state of one sequence. Each number of the state, and each sum over n, is
// computed in one order, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

constexpr int kShortNumbers = kKeptNumbers / kWarp;  // the most numbers of a column that stays in shared memory

TS_SHARED(float, ssd_in, kShortNumbers);
TS_SHARED(float, ssd_out, kShortNumbers);

// All threads of the block call it, those after the last column too.
template <class Column>
TS_DEVICE_INLINE void go_through(const SsdArgs& args, int64_t head, int64_t own, const Span& span) {
  const int64_t group = head / (args.heads / args.groups), width = args.width, numbers = args.numbers, at = head * width + own;
  const bool is_one = own < width;
  Column column(span.state + head * numbers * width + (is_one ? own : 0), is_one ? numbers : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float *b = args.b + row * args.b_stride + group * numbers, *c = args.c + row * args.c_stride + group * numbers;
    if (Column::kIsShort) {
      barrier();  // after this, all threads have finished the last token
      for (int64_t n = thread_index(); n < numbers; n += threads()) {
        ssd_in[n] = b[n];
        ssd_out[n] = c[n];
      }
      barrier();
    }
    if (!is_one) continue;
    const float asked = softplus(args.dt[row * args.dt_stride + head] + args.dt_bias[head]);
    const float step = smaller(args.dt_most, larger(args.dt_least, asked));  // NaN stays NaN, because it is the second operand
    const float left = exp(step * args.decay[head]), x = args.x[row * args.x_stride + at], inner = x * step;
    float sum = 0.0f;
    column.change([&](int64_t n, float& number) {
      const float in = Column::kIsShort ? static_cast<float>(ssd_in[n]) : b[n], out = Column::kIsShort ? static_cast<float>(ssd_out[n]) : c[n];
      number = fma(number, left, in * inner);
      sum = fma(out, number, sum);
    });
    args.out[row * args.out_stride + at] = fma(args.skip[head], x, sum);
  }
  if (is_one) column.end();
}

TS_KERNEL(ssd_scan, SsdArgs) {
  const int64_t own = block_index() % args.parts * threads() + thread_index(), of = block_index() / args.parts;
  const Span span = span_of(args.state, of / args.heads);
  if (args.numbers <= kShortNumbers) {
    go_through<KeptColumn>(args, of % args.heads, own, span);
  } else {
    go_through<LongColumn>(args, of % args.heads, own, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
