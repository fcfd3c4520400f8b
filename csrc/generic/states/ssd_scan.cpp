// ssd_scan: Mamba-2's scan. A task is one head of one sequence; the head's state stays in near caches for all tokens of the step.
// Several tokens pass through a row of the state while it is in registers; their b and c are turned beforehand, once for all heads, so that
// the factors of a row lie side by side. Each number of the state, and each sum over n, is made by the same operations in the same order
// however many tokens pass at once, so bits do not depend on how a sequence is cut into steps.
// Knows: simd.h, states.h, the thread pool. Must not know: models.
#include "twostroke/context.h"
#include "twostroke/simd.h"
#include "twostroke/softplus.h"
#include "twostroke/states.h"

namespace twostroke {
namespace {

#if defined(TS_LEVEL_AVX512)
constexpr int kTokens = 8;  // that pass at once: 16 registers of inputs and sums
#else
constexpr int kTokens = 2;
#endif

constexpr int64_t kTurnParts = 16;

// The factors of one head and some tokens: each token's step, what is left of the state; b and c: (numbers, tokens).
struct Tokens {
  float step[kLanes], left[kLanes];
  const float *b, *c, *x[kTokens];
  float* out[kTokens];
};

// A call. b and c: turned, (rows, groups, numbers) floats: of kTokens rows (groups, numbers, kTokens), from the first of each sequence on.
// What is left of a sequence stays as it is.
struct Scan {
  const ts_ssd_scan_args& a;
  float *b, *c;
};

// Sixteen columns of the state (numbers, width), `part` of which there are.
template <int kCount, bool kWhole>
TS_VECTOR_INLINE void scan_columns(const Tokens& t, float* state, int64_t numbers, int64_t width, int64_t part, int64_t first, float skip) {
  Vec inner[kCount], left[kCount], sum[kCount];
  const float *b = t.b, *c = t.c;
  for (int i = 0; i < kCount; ++i) {
    const Vec x = kWhole ? load(t.x[i] + first) : load_part(t.x[i] + first, part, 0.0f);
    inner[i] = x * set1(t.step[i]);
    left[i] = set1(t.left[i]);
    sum[i] = zero();
  }
  for (int64_t n = 0; n < numbers; ++n, b += kCount, c += kCount) {
    float* row = state + n * width + first;
    Vec h = kWhole ? load(row) : load_part(row, part, 0.0f);
    for (int i = 0; i < kCount; ++i) {
      h = fma(h, left[i], set1(b[i]) * inner[i]);
      sum[i] = fma(set1(c[i]), h, sum[i]);
    }
    if (kWhole) store(row, h);
    else store_part(row, part, h);
  }
  for (int i = 0; i < kCount; ++i) {
    const Vec x = kWhole ? load(t.x[i] + first) : load_part(t.x[i] + first, part, 0.0f);
    const Vec out = fma(set1(skip), x, sum[i]);
    if (kWhole) store(t.out[i] + first, out);
    else store_part(t.out[i] + first, part, out);
  }
}

template <int kCount>
void scan_tokens(const Scan& scan, int64_t head, int64_t row, float* state) {
  const ts_ssd_scan_args& a = scan.a;
  Tokens t;
  const int64_t group = head / (a.x.heads / a.b.heads), width = a.x.dim, numbers = a.b.dim;
  const Vec least = set1(static_cast<float>(a.dt_least)), most = set1(static_cast<float>(a.dt_most));
  float asked[kLanes] = {};
  for (int i = 0; i < kCount; ++i) {
    const int64_t r = row + i;
    asked[i] = a.dt.data[r * a.dt.stride + head] + a.dt_bias.data[head];
    t.x[i] = a.x.data + r * a.x.stride + head * width;
    t.out[i] = a.out.data + r * a.out.stride + head * width;
  }
  const int64_t turned = (row * a.b.heads + group * kTokens) * numbers;
  t.b = kCount == 1 ? a.b.data + row * a.b.stride + group * numbers : scan.b + turned;
  t.c = kCount == 1 ? a.c.data + row * a.c.stride + group * numbers : scan.c + turned;
  const Vec step = min(most, max(least, softplus(load(asked))));  // NaN stays: it is the second operand
  store(t.step, step);
  store(t.left, exp(step * set1(a.decay.data[head])));
  const float skip = a.skip.data[head];
  int64_t first = 0;
  for (; first + kLanes <= width; first += kLanes) scan_columns<kCount, true>(t, state, numbers, width, kLanes, first, skip);
  if (first < width) scan_columns<kCount, false>(t, state, numbers, width, width - first, first, skip);
}

void scan_task(void* arg, int64_t index, int32_t) {
  const Scan& scan = *static_cast<const Scan*>(arg);
  const ts_ssd_scan_args& a = scan.a;
  const int64_t heads = a.x.heads, head = index % heads;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* state = span.state + head * a.b.dim * a.x.dim;
  int64_t done = 0;
  for (; done + kTokens <= span.count; done += kTokens) scan_tokens<kTokens>(scan, head, span.first + done, state);
  for (; done < span.count; ++done) scan_tokens<1>(scan, head, span.first + done, state);
}

// Some tokens of b or c to (groups, numbers, kTokens).
void turn_tokens(const ts_value& value, int64_t row, float* to) {
  for (int64_t i = 0; i < kTokens; ++i) {
    const float* from = value.data + (row + i) * value.stride;
    for (int64_t n = 0; n < width_of(value); ++n) to[n * kTokens + i] = from[n];
  }
}

// One part of kTurnParts of what is turned of a sequence.
void turn_task(void* arg, int64_t index, int32_t) {
  const Scan& scan = *static_cast<const Scan*>(arg);
  const int64_t width = width_of(scan.a.b), part = index % kTurnParts;
  const Span span = span_of(scan.a.state, scan.a.slots, scan.a.batch, index / kTurnParts);
  const int64_t blocks = span.count / kTokens;
  for (int64_t i = blocks * part / kTurnParts; i < blocks * (part + 1) / kTurnParts; ++i) {
    const int64_t row = span.first + i * kTokens;
    turn_tokens(scan.a.b, row, scan.b + row * width);
    turn_tokens(scan.a.c, row, scan.c + row * width);
  }
}

bool any_turned(const ts_sequences& batch) {
  for (int64_t s = 0; s < batch.count; ++s)
    if (batch.row_starts[s + 1] - batch.row_starts[s] >= kTokens) return true;
  return false;
}

}  // namespace

int32_t run(ts_context* context, const ts_ssd_scan_args& a) {
  const int64_t heads = a.x.heads, rows = a.x.rows;
  if (!same_shape(a.out, a.x) || !same_shape(a.b, a.c) || a.b.rows != rows || a.dt.rows != rows) return TS_BAD_SHAPE;
  if (heads < 1 || a.x.dim < 1 || a.b.dim < 1 || a.b.heads < 1 || heads % a.b.heads != 0 || width_of(a.dt) != heads) return TS_BAD_SHAPE;
  if (a.decay.length != heads || a.skip.length != heads || a.dt_bias.length != heads) return TS_BAD_SHAPE;
  const int32_t status = check_states(a.state, a.slots, a.batch, rows, heads * a.b.dim * a.x.dim);
  if (status != TS_OK) return status;
  Scan scan = {a, nullptr, nullptr};
  if (any_turned(a.batch)) {
    const int64_t floats = rows * width_of(a.b);
    scan.b = static_cast<float*>(ts_scratch(context, static_cast<size_t>(2 * floats) * sizeof(float)));
    if (scan.b == nullptr) return TS_NO_MEMORY;
    scan.c = scan.b + floats;
    ts_parallel(context, a.batch.count * kTurnParts, turn_task, &scan);
  }
  ts_parallel(context, a.batch.count * heads, scan_task, &scan);
  return TS_OK;
}

}  // namespace twostroke
