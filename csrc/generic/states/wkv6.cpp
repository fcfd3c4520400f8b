// wkv6: the scan of RWKV-6. A task is one head of one sequence; its state stays in near caches for all tokens of the step. Each number of
// the state, and each sum over its rows, is computed by the same operations in the same order, so bits do not depend on chunks.
#include "twostroke/rows/softplus.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"
#include "twostroke/states/wkv.h"

namespace twostroke {
namespace {

// Updates sixteen columns, or the last `count`, of the state (rows, width). first: the weight of a row for its own token, which is added to
// the state's part.
void pass_token(const float* r, const float* left, const float* k, const float* first, const float* v, float* state, int64_t rows,
                int64_t width, int64_t count, float* out) {
  const Vec value = load_lanes(v, count);
  Vec sum = zero();
  for (int64_t j = 0; j < rows; ++j) {
    const Vec was = load_lanes(state + j * width, count), made = set1(k[j]) * value;
    sum = fma(set1(r[j]), fma(set1(first[j]), made, was), sum);
    store_lanes(state + j * width, count, fma(set1(left[j]), was, made));
  }
  store_lanes(out, count, sum);
}

void wkv6_task(const ts_wkv6_args& a, int64_t index) {
  const int64_t heads = a.v.heads, head = index % heads, width = a.v.dim, at = head * width;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* state = span.state + head * width * width;
  float left[kTokensAtOnce][kMostHeadRows];
  for (int64_t done = 0; done < span.count; done += kTokensAtOnce) {
    const int64_t first = span.first + done, count = span.count - done < kTokensAtOnce ? span.count - done : kTokensAtOnce;
    for (int64_t t = 0; t < count; ++t) {
      const float* w = a.w.data + (first + t) * a.w.stride + at;
      each_lanes(width, [&](int64_t i, int64_t lanes) {
        const Vec raw = load_part(w + i, lanes, 0.0f);
        store_part(left[t] + i, lanes, exp(zero() - exp(raw)) + nan_unless_finite(raw));
      });
    }
    each_lanes(width, [&](int64_t column, int64_t lanes) {
      for (int64_t t = 0; t < count; ++t) {
        const int64_t row = first + t;
        pass_token(a.r.data + row * a.r.stride + at, left[t], a.k.data + row * a.k.stride + at, a.first.data + at,
                   a.v.data + row * a.v.stride + at + column, state + column, width, width, lanes, a.out.data + row * a.out.stride + at + column);
      }
    });
    for (int64_t t = 0; t < count; ++t)
      norm_of_head(a.out.data + (first + t) * a.out.stride + at, a.weight.data + at, a.bias.data + at, static_cast<float>(a.eps), width);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_wkv6_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<wkv6_task>(context, a.batch.count * a.v.heads, a);
  return TS_OK;
}

}  // namespace twostroke
