// xielu, a thread an element: csrc/generic/rows/xielu.cpp, operation by operation.
// Knows: arithmetic.h. Must not know: models.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

// exp(x) - 1 for x <= 0: by its series near 0, where the difference would lose all digits.
TS_DEVICE_INLINE float exp_less_one(float x) {
  float p = 1.0f / 5040.0f;
  p = fma(p, x, 1.0f / 720.0f);
  p = fma(p, x, 1.0f / 120.0f);
  p = fma(p, x, 1.0f / 24.0f);
  p = fma(p, x, 1.0f / 6.0f);
  p = fma(p, x, 0.5f);
  return x > -0.5f ? fma(p * x, x, x) : exp(x) - 1.0f;
}

// gate: its four numbers.
TS_KERNEL(xielu, ElementArgs) {
  const int64_t row = block_index() / args.parts, at = block_index() % args.parts * threads() + thread_index();
  if (at >= args.width) return;
  float* out = args.out + row * args.out_stride + at;
  const float x = *out, rise = softplus(args.gate[0]), line = args.gate[2], fall = line + softplus(args.gate[1]);
  const float held = 0.0f - larger(0.0f - x, 0.0f - args.gate[3]);  // the smaller of x and the last number
  *out = x > 0.0f ? fma(rise * x, x, line * x) : fma(line, x, fall * (exp_less_one(held) - x));
}

}  // namespace cuda
}  // namespace twostroke
