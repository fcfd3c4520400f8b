// pointwise: a thread computes four elements, step by step as csrc/generic/rows/pointwise.cpp does.
#include "twostroke/cuda/machine/fours.h"
#include "twostroke/rows/pointwise.h"

namespace twostroke {
namespace cuda {

// exp(x) - 1 for x <= 0. Near 0 it is computed by its series, because the difference would lose all digits.
TS_DEVICE_INLINE float exp_less_one(float x) {
  float p = 1.0f / 5040.0f;
  p = fma(p, x, 1.0f / 720.0f);
  p = fma(p, x, 1.0f / 120.0f);
  p = fma(p, x, 1.0f / 24.0f);
  p = fma(p, x, 1.0f / 6.0f);
  p = fma(p, x, 0.5f);
  return x > -0.5f ? fma(p * x, x, x) : exp(x) - 1.0f;
}

TS_DEVICE_INLINE void xielu_four(const float* numbers, Four& four) {
  const float rise = softplus(numbers[0]), line = numbers[2], fall = line + softplus(numbers[1]), most = 0.0f - numbers[3];
  TS_EACH_OF_FOUR {
    const float x = four.v[i], held = 0.0f - larger(0.0f - x, most);  // the smaller of x and the last number
    four.v[i] = x > 0.0f ? fma(rise * x, x, line * x) : fma(line, x, fall * (exp_less_one(held) - x));
  }
}

// The numbers of four columns. Where one number applies to all columns, it is returned four times.
TS_DEVICE_INLINE Four numbers_of(const ts_pointwise_args& args, const FourPlace& e) {
  if (args.numbers.length != 1) return load_four(args.numbers.data + e.at, e.count);
  Four same;
  TS_EACH_OF_FOUR same.v[i] = args.numbers.data[0];
  return same;
}

TS_DEVICE_INLINE void take_step(const ts_pointwise_args& args, int64_t step, const FourPlace& e, Four& x) {
  const float a = static_cast<float>(args.a), b = static_cast<float>(args.b);
  switch (step) {
    case kTimesA: TS_EACH_OF_FOUR x.v[i] *= a; return;
    case kTimesB: TS_EACH_OF_FOUR x.v[i] *= b; return;
    // NaN stays NaN, because it is the second operand
    case kWithinA: TS_EACH_OF_FOUR x.v[i] = larger(0.0f - a, smaller(a, x.v[i])); return;
    case kTanh: TS_EACH_OF_FOUR x.v[i] = tanh_ratio(x.v[i]); return;
    case kTimesNumbers: {
      const Four numbers = numbers_of(args, e);
      TS_EACH_OF_FOUR x.v[i] *= numbers.v[i];
      return;
    }
    case kMinusNumbers: {
      const Four numbers = numbers_of(args, e);
      TS_EACH_OF_FOUR x.v[i] -= numbers.v[i];
      return;
    }
    case kBetweenNumbers: {
      const float least = args.numbers.data[0], most = args.numbers.data[1];
      TS_EACH_OF_FOUR x.v[i] = smaller(most, larger(least, x.v[i]));
      return;
    }
    case kXielu: return xielu_four(args.numbers.data, x);
    case kPlusY: {
      const Four y = load_four(args.y.data + e.row * args.y.stride + e.at, e.count);
      TS_EACH_OF_FOUR x.v[i] += y.v[i];
      return;
    }
    default: return activate_four(step - kFirstActivation, x);
  }
}

TS_KERNEL(pointwise, ts_pointwise_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  Four x = load_four(args.x.data + e.row * args.x.stride + e.at, e.count);
  for (int64_t left = args.program; left != 0; left >>= 8) take_step(args, left & 255, e, x);
  store_four(args.out.data + e.row * args.out.stride + e.at, x, e.count);
}

}  // namespace cuda
}  // namespace twostroke
