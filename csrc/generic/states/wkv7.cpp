// wkv7: the scan of RWKV-7. A task is one head of one sequence; its state stays in near caches for all tokens of the step. Each number of
// the state, and each sum over its rows, is computed by the same operations in the same order, so bits do not depend on chunks.
#include "twostroke/rows/activation.h"
#include "twostroke/rows/softplus.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"
#include "twostroke/states/wkv.h"

namespace twostroke {
namespace {

constexpr float kDecay = -0.6065306597126334f;  // the value -exp(-1/2)

// The factors of one head and some tokens: the decay of each row of the state, the direction that is removed and its replacement, and the
// key.
struct Factors {
  float left[kTokensAtOnce][kMostHeadRows], removed[kTokensAtOnce][kMostHeadRows], put[kTokensAtOnce][kMostHeadRows];
  float key[kTokensAtOnce][kMostHeadRows], bonus[kTokensAtOnce];
};

void prepare(const ts_wkv7_args& a, int64_t head, int64_t row, Factors* f, int64_t t) {
  const int64_t rows = a.k.dim, at = head * rows;
  const float *r = a.r.data + row * a.r.stride + at, *w = a.w.data + row * a.w.stride + at, *k = a.k.data + row * a.k.stride + at;
  const float* rate = a.a.data + row * a.a.stride + at;
  Vec squares = zero(), bonus = zero();
  each_lanes(rows, [&](int64_t i, int64_t count) {
    const Vec raw = load_part(w + i, count, 0.0f), key = load_part(k + i, count, 0.0f), gate = sigmoid(load_part(rate + i, count, 0.0f));
    store_part(f->left[t] + i, count, exp(set1(kDecay) * sigmoid(raw)) + nan_unless_finite(raw));
    const Vec direction = key * load_part(a.removal.data + at + i, count, 0.0f);
    squares = fma(direction, direction, squares);
    store_part(f->removed[t] + i, count, direction);
    const Vec kept = key * fma(gate - set1(1.0f), load_part(a.growth.data + at + i, count, 0.0f), set1(1.0f));
    store_part(f->key[t] + i, count, kept);
    bonus = fma(load_part(r + i, count, 0.0f) * kept, load_part(a.bonus.data + at + i, count, 0.0f), bonus);
  });
  const float length = sqrtf(reduce_add(squares));
  const Vec scale = set1(1.0f / (length > 1e-12f ? length : 1e-12f));
  each_lanes(rows, [&](int64_t i, int64_t count) {
    const Vec unit = load_part(f->removed[t] + i, count, 0.0f) * scale;
    store_part(f->removed[t] + i, count, zero() - unit);
    store_part(f->put[t] + i, count, unit * sigmoid(load_part(rate + i, count, 0.0f)));
  });
  f->bonus[t] = reduce_add(bonus);
}

// Updates sixteen columns, or the last `count`, of the state (rows, width).
void pass_token(const Factors& f, int64_t t, const float* r, const float* v, float* state, int64_t rows, int64_t width, int64_t count, float* out) {
  const Vec value = load_lanes(v, count);
  Vec seen = zero(), sum = zero();
  for (int64_t j = 0; j < rows; ++j) seen = fma(set1(f.removed[t][j]), load_lanes(state + j * width, count), seen);
  for (int64_t j = 0; j < rows; ++j) {
    const Vec kept = load_lanes(state + j * width, count) * set1(f.left[t][j]);
    const Vec now = fma(set1(f.key[t][j]), value, fma(set1(f.put[t][j]), seen, kept));
    sum = fma(set1(r[j]), now, sum);
    store_lanes(state + j * width, count, now);
  }
  store_lanes(out, count, sum);
}

void finish(const ts_wkv7_args& a, int64_t head, float bonus, const float* v, float* out) {
  const int64_t width = a.v.dim, at = head * width;
  norm_of_head(out, a.weight.data + at, a.bias.data + at, static_cast<float>(a.eps), width);
  each_lanes(width, [&](int64_t i, int64_t count) {
    store_part(out + i, count, fma(set1(bonus), load_part(v + i, count, 0.0f), load_part(out + i, count, 0.0f)));
  });
}

void wkv7_task(const ts_wkv7_args& a, int64_t index) {
  const int64_t heads = a.v.heads, head = index % heads, width = a.v.dim, rows = a.k.dim;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* state = span.state + head * rows * width;
  Factors factors;
  for (int64_t done = 0; done < span.count; done += kTokensAtOnce) {
    const int64_t first = span.first + done, count = span.count - done < kTokensAtOnce ? span.count - done : kTokensAtOnce;
    for (int64_t t = 0; t < count; ++t) prepare(a, head, first + t, &factors, t);
    each_lanes(width, [&](int64_t column, int64_t lanes) {
      for (int64_t t = 0; t < count; ++t)
        pass_token(factors, t, a.r.data + (first + t) * a.r.stride + head * rows, a.v.data + (first + t) * a.v.stride + head * width + column,
                   state + column, rows, width, lanes, a.out.data + (first + t) * a.out.stride + head * width + column);
    });
    for (int64_t t = 0; t < count; ++t)
      finish(a, head, factors.bonus[t], a.v.data + (first + t) * a.v.stride + head * width, a.out.data + (first + t) * a.out.stride + head * width);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_wkv7_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<wkv7_task>(context, a.batch.count * a.v.heads, a);
  return TS_OK;
}

}  // namespace twostroke
