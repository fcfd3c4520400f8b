// xielu, a thread four elements: csrc/generic/rows/xielu.cpp, operation by operation.
#include "twostroke/cuda/machine/fours.h"

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
  const FourPlace e = four_place(args.parts, args.width);
  if (e.count == 0) return;
  const float rise = softplus(args.gate[0]), line = args.gate[2], fall = line + softplus(args.gate[1]), most = 0.0f - args.gate[3];
  float* at = args.out + e.row * args.out_stride + e.at;
  Four four = load_four(at, e.count);
  TS_EACH_OF_FOUR {
    const float x = four.v[i], held = 0.0f - larger(0.0f - x, most);  // the smaller of x and the last number
    four.v[i] = x > 0.0f ? fma(rise * x, x, line * x) : fma(line, x, fall * (exp_less_one(held) - x));
  }
  store_four(at, four, e.count);
}

}  // namespace cuda
}  // namespace twostroke
