// ssd_scan: Mamba-2's scan, a block a head of one sequence, a thread a column of its state, or two. Each number of the state, and each sum over n,
// is made in one order, so bits do not depend on how a sequence is cut into steps.
// Knows: states.h, held.h. Must not know: models.
#include "twostroke/cuda/held.h"
#include "twostroke/cuda/states.h"

namespace twostroke {
namespace cuda {

// One head of one sequence.
struct SsdHead {
  int64_t head, group;
  float* state;
};

// What a token does to a head's state. NaN stays: it is the second operand.
struct SsdStep {
  float left, x, inner;

  TS_MEMBER_INLINE SsdStep(const SsdArgs& args, int64_t head, int64_t row, int64_t column) {
    const float asked = softplus(args.dt[row * args.dt_stride + head] + args.dt_bias[head]);
    const float step = smaller(args.dt_most, larger(args.dt_least, asked));
    left = exp(step * args.decay[head]);
    x = args.x[row * args.x_stride + head * args.width + column];
    inner = x * step;
  }
};

TS_SHARED(float, ssd_b, 2 * kHeldStep);
TS_SHARED(float, ssd_c, 2 * kHeldStep);

TS_DEVICE_INLINE void scan_held(const SsdArgs& args, const Span& span, const SsdHead& of) {
  const HeldPart own(args.numbers, args.width);
  const int32_t numbers = static_cast<int32_t>(args.numbers);
  float h[kHeld];
  own.read(h, of.state, args.width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    for (int32_t n = thread_index(); n < numbers; n += threads()) {
      ssd_b[held_place(n)] = args.b[row * args.b_stride + of.group * numbers + n];
      ssd_c[held_place(n)] = args.c[row * args.c_stride + of.group * numbers + n];
    }
    const SsdStep step(args, of.head, row, own.own ? own.column : 0);
    barrier();
    TS_EVERY_LANE
    for (int32_t n = 0; n < kHeld; ++n) h[n] = fma(h[n], step.left, ssd_b[own.part * kHeldStep + n] * step.inner);
    const float sum = own.sum(h, ssd_c);
    if (own.own && own.part == 0) args.out[row * args.out_stride + of.head * args.width + own.column] = fma(args.skip[of.head], step.x, sum);
    barrier();  // before the next token's numbers take the place of these
  }
  own.write(h, of.state, args.width);
}

TS_DEVICE_INLINE void scan_any_column(const SsdArgs& args, const Span& span, const SsdHead& of, int64_t column) {
  const int64_t numbers = args.numbers;
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const SsdStep step(args, of.head, row, column);
    const float *b = args.b + row * args.b_stride + of.group * numbers, *c = args.c + row * args.c_stride + of.group * numbers;
    float sum = 0.0f;
    for (int64_t n = 0; n < numbers; ++n) {
      float* at = of.state + n * args.width + column;
      const float h = fma(*at, step.left, b[n] * step.inner);
      sum = fma(c[n], h, sum);
      *at = h;
    }
    args.out[row * args.out_stride + of.head * args.width + column] = fma(args.skip[of.head], step.x, sum);
  }
}

TS_KERNEL(ssd_scan, SsdArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), heads = static_cast<uint32_t>(args.heads);
  const int64_t head = block % heads, width = args.width;
  const Span span = span_of(args.state, block / heads);
  const SsdHead of = {head, head / (args.heads / args.groups), span.state + head * args.numbers * width};
  if (is_held(args.numbers, width, threads())) return scan_held(args, span, of);
  for (int64_t column = thread_index(); column < width; column += threads()) {
    scan_any_column(args, span, of, column);
  }
}

}  // namespace cuda
}  // namespace twostroke
