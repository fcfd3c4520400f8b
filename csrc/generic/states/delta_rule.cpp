// delta_rule: the gated delta rule. A task is one head of one sequence; its state stays in near caches for all tokens of the step.
// Tokens pass one after the other through some columns of the state, then through the next. Each number of the state, and each sum over
// its rows, is made by the same operations in the same order however many columns go together, so bits do not depend on chunks.
// Knows: simd.h, states.h, the thread pool. Must not know: models.
#include <math.h>

#include "twostroke/activation.h"
#include "twostroke/context.h"
#include "twostroke/simd.h"
#include "twostroke/softplus.h"
#include "twostroke/states.h"

namespace twostroke {
namespace {

constexpr int64_t kMostRows = 512;  // of one head's state
constexpr int kTokens = 8;          // whose keys and queries are made at once
constexpr int kTogether = 4;        // vectors of columns: sums that do not wait for each other

// The factors of one head and some tokens: unit keys, scaled unit queries, what is left of each row of the state, how strongly it is
// corrected.
struct Tokens {
  float key[kTokens][kMostRows], query[kTokens][kMostRows], left[kTokens][kMostRows], beta[kTokens];
};

// to = x * factor / sqrt(sum(x^2) + 1e-6)
void unit(const float* x, int64_t count, float factor, float* to) {
  Vec squares = zero();
  const int64_t whole = count - count % kLanes, rest = count - whole;
  for (int64_t i = 0; i < whole; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  if (rest > 0) {
    const Vec last = load_part(x + whole, rest, 0.0f);
    squares = fma(last, last, squares);
  }
  const Vec scale = set1(factor / sqrtf(reduce_add(squares) + 1e-6f));
  for (int64_t i = 0; i < whole; i += kLanes) store(to + i, load(x + i) * scale);
  if (rest > 0) store_part(to + whole, rest, load_part(x + whole, rest, 0.0f) * scale);
}

void prepare(const ts_delta_rule_args& a, int64_t head, int64_t row, Tokens* t, int64_t i) {
  const int64_t rows = a.k.dim, group = head / (a.v.heads / a.k.heads), gates = width_of(a.a) / a.v.heads;
  unit(a.k.data + row * a.k.stride + group * rows, rows, 1.0f, t->key[i]);
  unit(a.q.data + row * a.q.stride + group * rows, rows, 1.0f / sqrtf(static_cast<float>(rows)), t->query[i]);
  const float* gate = a.a.data + row * a.a.stride + head * gates;
  const Vec decay = set1(a.decay.data[head]);
  for (int64_t g = 0; g < gates; g += kLanes) {
    const int64_t count = gates - g < kLanes ? gates - g : kLanes;
    const Vec step = softplus(load_part(gate + g, count, 0.0f) + load_part(a.dt_bias.data + head * gates + g, count, 0.0f));
    store_part(t->left[i] + g, count, exp(decay * step) + nan_unless_finite(step));
  }
  for (int64_t g = gates; g < rows; ++g) t->left[i][g] = t->left[i][0];
  const Vec b = set1(a.b.data[row * a.b.stride + head]);
  float beta[kLanes];
  store(beta, set1(static_cast<float>(a.strength)) * sigmoid(b) + nan_unless_finite(b));
  t->beta[i] = beta[0];
}

// kCount vectors of columns of the state (rows, width), from `first` on; of the last one `part` lanes.
template <int kCount, bool kWhole>
TS_VECTOR_INLINE void pass_token(const Tokens& t, int64_t i, const float* v, float* state, int64_t rows, int64_t width, int64_t part,
                                 float* out) {
  const float *key = t.key[i], *query = t.query[i], *left = t.left[i];
  Vec sum[kCount];
  for (int c = 0; c < kCount; ++c) sum[c] = zero();
  for (int64_t k = 0; k < rows; ++k) {
    const Vec kept = set1(left[k]), weight = set1(key[k]);
    for (int c = 0; c < kCount; ++c) {
      const float* at = state + k * width + c * kLanes;
      sum[c] = fma(weight, (kWhole ? load(at) : load_part(at, part, 0.0f)) * kept, sum[c]);
    }
  }
  Vec missing[kCount];
  for (int c = 0; c < kCount; ++c) {
    const Vec value = kWhole ? load(v + c * kLanes) : load_part(v, part, 0.0f);
    missing[c] = set1(t.beta[i]) * (value - sum[c]);
    sum[c] = zero();
  }
  for (int64_t k = 0; k < rows; ++k) {
    const Vec kept = set1(left[k]), weight = set1(key[k]), asked = set1(query[k]);
    for (int c = 0; c < kCount; ++c) {
      float* at = state + k * width + c * kLanes;
      const Vec now = fma(weight, missing[c], (kWhole ? load(at) : load_part(at, part, 0.0f)) * kept);
      sum[c] = fma(asked, now, sum[c]);
      if (kWhole) store(at, now);
      else store_part(at, part, now);
    }
  }
  for (int c = 0; c < kCount; ++c) {
    if (kWhole) store(out + c * kLanes, sum[c]);
    else store_part(out, part, sum[c]);
  }
}

template <int kCount, bool kWhole>
void pass_tokens(const ts_delta_rule_args& a, const Tokens& t, int64_t head, int64_t row, int64_t tokens, float* state, int64_t first, int64_t part) {
  const int64_t width = a.v.dim, at = head * width + first;
  for (int64_t i = 0; i < tokens; ++i)
    pass_token<kCount, kWhole>(t, i, a.v.data + (row + i) * a.v.stride + at, state + first, a.k.dim, width, part,
                               a.out.data + (row + i) * a.out.stride + at);
}

void delta_task(void* arg, int64_t index, int32_t) {
  const ts_delta_rule_args& a = *static_cast<const ts_delta_rule_args*>(arg);
  const int64_t heads = a.v.heads, head = index % heads, width = a.v.dim;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* state = span.state + head * a.k.dim * width;
  Tokens tokens;
  for (int64_t done = 0; done < span.count; done += kTokens) {
    const int64_t row = span.first + done, count = span.count - done < kTokens ? span.count - done : kTokens;
    for (int64_t i = 0; i < count; ++i) prepare(a, head, row + i, &tokens, i);
    int64_t first = 0;
    for (; first + kTogether * kLanes <= width; first += kTogether * kLanes)
      pass_tokens<kTogether, true>(a, tokens, head, row, count, state, first, kLanes);
    for (; first + kLanes <= width; first += kLanes) pass_tokens<1, true>(a, tokens, head, row, count, state, first, kLanes);
    if (first < width) pass_tokens<1, false>(a, tokens, head, row, count, state, first, width - first);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_delta_rule_args& a) {
  const int64_t heads = a.v.heads, rows = a.v.rows, gates = width_of(a.a);
  if (!same_shape(a.out, a.v) || !same_shape(a.q, a.k) || a.k.rows != rows || a.a.rows != rows || a.b.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.v.dim < 1 || a.k.dim < 1 || a.k.dim > kMostRows || a.k.heads < 1 || heads % a.k.heads != 0) return TS_BAD_SHAPE;
  if ((gates != heads && gates != heads * a.k.dim) || width_of(a.b) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.dt_bias.length != gates) return TS_BAD_SHAPE;
  const int32_t status = check_states(a.state, a.slots, a.batch, rows, heads * a.k.dim * a.v.dim);
  if (status != TS_OK) return status;
  ts_parallel(context, a.batch.count * heads, delta_task, const_cast<ts_delta_rule_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
