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
TS_DEVICE_INLINE void go_through(const ts_ssd_scan_args& args, int64_t head, int64_t own, const Span& span) {
  const int64_t group = head / (args.x.heads / args.b.heads), width = args.x.dim, numbers = args.b.dim, at = head * width + own;
  const bool is_one = own < width;
  Column column(span.state + head * numbers * width + (is_one ? own : 0), is_one ? numbers : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float *b = args.b.data + row * args.b.stride + group * numbers, *c = args.c.data + row * args.c.stride + group * numbers;
    if (Column::kIsShort) {
      barrier();  // after this, all threads have finished the last token
      for (int64_t n = thread_index(); n < numbers; n += threads()) {
        ssd_in[n] = b[n];
        ssd_out[n] = c[n];
      }
      barrier();
    }
    if (!is_one) continue;
    const float asked = softplus(args.dt.data[row * args.dt.stride + head] + args.dt_bias.data[head]);
    // NaN stays NaN, because it is the second operand
    const float step = smaller(static_cast<float>(args.dt_most), larger(static_cast<float>(args.dt_least), asked));
    const float left = exp(step * args.decay.data[head]), x = args.x.data[row * args.x.stride + at], inner = x * step;
    float sum = 0.0f;
    column.change([&](int64_t n, float& number) {
      const float in = Column::kIsShort ? static_cast<float>(ssd_in[n]) : b[n], out = Column::kIsShort ? static_cast<float>(ssd_out[n]) : c[n];
      number = fma(number, left, in * inner);
      sum = fma(out, number, sum);
    });
    args.out.data[row * args.out.stride + at] = fma(args.skip.data[head], x, sum);
  }
  if (is_one) column.end();
}

TS_KERNEL(ssd_scan, ts_ssd_scan_args) {
  const int64_t heads = args.x.heads, parts = divide_up(args.x.dim, kWarp);
  const int64_t own = block_index() % parts * threads() + thread_index(), of = block_index() / parts;
  const Span span = span_of(args, of / heads);
  if (args.b.dim <= kShortNumbers) {
    go_through<KeptColumn>(args, of % heads, own, span);
  } else {
    go_through<LongColumn>(args, of % heads, own, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
