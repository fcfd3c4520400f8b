// xielu: an activation with four numbers of the checkpoint.
#include "twostroke/ops.h"
#include "twostroke/simd.h"
#include "twostroke/softplus.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

// exp(x) - 1 for x <= 0: by its series near 0, where the difference would lose all digits.
TS_VECTOR_INLINE Vec exp_less_one(Vec x) {
  Vec p = set1(1.0f / 5040.0f);
  p = fma(p, x, set1(1.0f / 720.0f));
  p = fma(p, x, set1(1.0f / 120.0f));
  p = fma(p, x, set1(1.0f / 24.0f));
  p = fma(p, x, set1(1.0f / 6.0f));
  p = fma(p, x, set1(0.5f));
  const Vec near = fma(p * x, x, x), far = exp(x) - set1(1.0f);
  float a[kLanes], b[kLanes], of[kLanes];
  store(a, near);
  store(b, far);
  store(of, x);
  for (int i = 0; i < kLanes; ++i) a[i] = of[i] > -0.5f ? a[i] : b[i];
  return load(a);
}

void xielu_row(const ts_xielu_args& a, int64_t row) {
  float* x = a.out.data + row * a.out.stride;
  const int64_t width = width_of(a.out);
  float alphas[kLanes];
  store(alphas, softplus(load_part(a.numbers.data, 2, 0.0f)));
  const float beta = a.numbers.data[2];
  const Vec rise = set1(alphas[0]), fall = set1(beta + alphas[1]), line = set1(beta), eps = set1(a.numbers.data[3]);
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t count = width - i < kLanes ? width - i : kLanes;
    const Vec each = load_part(x + i, count, 0.0f);
    const Vec held = zero() - max(zero() - each, zero() - eps);  // the smaller of x and eps
    float of[kLanes], above[kLanes], below[kLanes];
    store(of, each);
    store(above, fma(rise * each, each, line * each));
    store(below, fma(line, each, fall * (exp_less_one(held) - each)));
    for (int64_t lane = 0; lane < count; ++lane) x[i + lane] = of[lane] > 0.0f ? above[lane] : below[lane];
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_xielu_args& a) {
  if (a.numbers.length != 4) return TS_BAD_SHAPE;
  share_tasks<xielu_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
