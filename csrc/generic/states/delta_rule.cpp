// delta_rule: the gated delta rule. A task is one head of one sequence; its state stays in near caches for all tokens of the step. All
// tokens go through some columns of the state, one after the other, and then through the next columns. A row is loaded once, for the change
// by one token and the look-up by the next one. Each number of the state, and each sum over its rows, is computed by the same operations in
// the same order however many columns and tokens go together. So bits do not depend on chunks.
#include <math.h>

#include "twostroke/rows/activation.h"
#include "twostroke/simd.h"
#include "twostroke/rows/softplus.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int kTokens = 8;  // tokens whose keys and queries are prepared at once
constexpr int kTogether = 4;  // vectors of columns whose sums do not wait for each other

// The factors of one head and some tokens: unit keys, scaled unit queries, the decay of each row of the state, and the strength of the
// correction.
struct Tokens {
  float key[kTokens][kMostStateRows], query[kTokens][kMostStateRows], left[kTokens][kMostStateRows], beta[kTokens];
};

// Computes to = x * factor / sqrt(sum(x^2) + 1e-6).
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
  const Vec decay = set1(a.decay.data[head]), growth = zero() - decay, lowest = set1(static_cast<float>(a.lowest));
  for (int64_t g = 0; g < gates; g += kLanes) {
    const int64_t count = gates - g < kLanes ? gates - g : kLanes;
    const Vec raw = load_part(gate + g, count, 0.0f) + load_part(a.dt_bias.data + head * gates + g, count, 0.0f);
    const Vec power = a.lowest < 0 ? lowest * sigmoid(growth * raw) : decay * softplus(raw);
    store_part(t->left[i] + g, count, exp(power) + nan_unless_finite(raw));
  }
  for (int64_t g = gates; g < rows; ++g) t->left[i][g] = t->left[i][0];
  const Vec b = set1(a.b.data[row * a.b.stride + head]);
  float beta[kLanes];
  store(beta, set1(static_cast<float>(a.strength)) * sigmoid(b) + nan_unless_finite(b));
  t->beta[i] = beta[0];
}

// kCount vectors of columns of one head's state (rows, width). The last vector has `part` lanes.
template <int kCount, bool kWhole>
struct Columns {
  float* state;
  int64_t rows, width, part;

  __attribute__((always_inline)) Vec get(const float* at) const { return kWhole ? load(at) : load_part(at, part, 0.0f); }
  __attribute__((always_inline)) void put(float* at, Vec value) const {
    if (kWhole) store(at, value);
    else store_part(at, part, value);
  }
  __attribute__((always_inline)) float* at(int64_t k, int c) const { return state + k * width + c * kLanes; }
};

// sum becomes the product of the first token's key with the state after its decay.
template <int kCount, bool kWhole>
TS_VECTOR_INLINE void look_up(const Tokens& t, const Columns<kCount, kWhole>& columns, Vec (&sum)[kCount]) {
  for (int c = 0; c < kCount; ++c) sum[c] = zero();
  for (int64_t k = 0; k < columns.rows; ++k) {
    const Vec kept = set1(t.left[0][k]), weight = set1(t.key[0][k]);
    for (int c = 0; c < kCount; ++c) sum[c] = fma(weight, columns.get(columns.at(k, c)) * kept, sum[c]);
  }
}

// Computes the state after token i, and the token's output. While a row is in registers, its decay for the next token is applied and the
// next key looks it up. So `sum` belongs to token i before and to token i + 1 afterwards. kFirst: the state is as the step found it. kLast:
// it is left as the next step must find it.
template <bool kFirst, bool kLast, int kCount, bool kWhole>
TS_VECTOR_INLINE void pass_token(const Tokens& t, int64_t i, const float* v, const Columns<kCount, kWhole>& columns, Vec (&sum)[kCount], float* out) {
  const float *key = t.key[i], *query = t.query[i], *left = t.left[i];
  const float *next_key = kLast ? nullptr : t.key[i + 1], *next_left = kLast ? nullptr : t.left[i + 1];
  Vec missing[kCount], made[kCount];
  for (int c = 0; c < kCount; ++c) {
    missing[c] = set1(t.beta[i]) * (columns.get(v + c * kLanes) - sum[c]);
    made[c] = sum[c] = zero();
  }
  for (int64_t k = 0; k < columns.rows; ++k) {
    const Vec weight = set1(key[k]), asked = set1(query[k]);
    for (int c = 0; c < kCount; ++c) {
      float* at = columns.at(k, c);
      const Vec before = kFirst ? columns.get(at) * set1(left[k]) : columns.get(at);
      const Vec now = fma(weight, missing[c], before);
      made[c] = fma(asked, now, made[c]);
      if (kLast) {
        columns.put(at, now);
      } else {
        const Vec kept = now * set1(next_left[k]);
        sum[c] = fma(set1(next_key[k]), kept, sum[c]);
        columns.put(at, kept);
      }
    }
  }
  for (int c = 0; c < kCount; ++c) columns.put(out + c * kLanes, made[c]);
}

template <int kCount, bool kWhole>
void pass_tokens(const ts_delta_rule_args& a, const Tokens& t, int64_t head, int64_t row, int64_t tokens, float* state, int64_t first, int64_t part) {
  const int64_t width = a.v.dim, at = head * width + first;
  const Columns<kCount, kWhole> columns = {state + first, a.k.dim, width, part};
  const auto v = [&](int64_t i) { return a.v.data + (row + i) * a.v.stride + at; };
  const auto out = [&](int64_t i) { return a.out.data + (row + i) * a.out.stride + at; };
  Vec sum[kCount];
  look_up(t, columns, sum);
  if (tokens == 1) return pass_token<true, true>(t, 0, v(0), columns, sum, out(0));
  pass_token<true, false>(t, 0, v(0), columns, sum, out(0));
  for (int64_t i = 1; i + 1 < tokens; ++i) pass_token<false, false>(t, i, v(i), columns, sum, out(i));
  pass_token<false, true>(t, tokens - 1, v(tokens - 1), columns, sum, out(tokens - 1));
}

void delta_task(const ts_delta_rule_args& a, int64_t index) {
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
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<delta_task>(context, a.batch.count * a.v.heads, a);
  return TS_OK;
}

}  // namespace twostroke
