// ssd_scan: Mamba-2's scan. A task is one head of one sequence; the head's state stays in near caches for all tokens of the step. Several
// tokens go through a row of the state while it is in registers. Each number of the state, and each sum over n, is computed by the same
// operations in the same order however many tokens go together. So bits do not depend on how a sequence is cut into steps.
#include "twostroke/products/register_tiles.h"
#include "twostroke/simd.h"
#include "twostroke/rows/softplus.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int kTokens = kRegisterTiles.scan_tokens;  // tokens that go through a row together
constexpr int kTogether = 4;  // vectors of columns for one token at once, so that rows of the state are read from front to back

// The factors of one head and some tokens: each token's step, the decay of the state, and the rows of b and c.
struct Tokens {
  float step[kLanes], left[kLanes];
  const float *b[kTokens], *c[kTokens], *x[kTokens];
  float* out[kTokens];
};

// kVectors vectors of columns of the state (numbers, width). The last vector has `part` lanes.
template <int kCount, int kVectors, bool kWhole>
TS_VECTOR_INLINE void scan_columns(const Tokens& t, float* state, int64_t numbers, int64_t width, int64_t part, int64_t first, float skip) {
  const auto get = [part](const float* at) { return kWhole ? load(at) : load_part(at, part, 0.0f); };
  const auto put = [part](float* at, Vec value) {
    if (kWhole) store(at, value);
    else store_part(at, part, value);
  };
  Vec inner[kCount][kVectors], sum[kCount][kVectors];
  for (int i = 0; i < kCount; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      inner[i][v] = get(t.x[i] + first + v * kLanes) * set1(t.step[i]);
      sum[i][v] = zero();
    }
  }
  for (int64_t n = 0; n < numbers; ++n) {
    float* row = state + n * width + first;
    Vec h[kVectors];
    for (int v = 0; v < kVectors; ++v) h[v] = get(row + v * kLanes);
    for (int i = 0; i < kCount; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        h[v] = fma(h[v], set1(t.left[i]), set1(t.b[i][n]) * inner[i][v]);
        sum[i][v] = fma(set1(t.c[i][n]), h[v], sum[i][v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) put(row + v * kLanes, h[v]);
  }
  for (int i = 0; i < kCount; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = first + v * kLanes;
      put(t.out[i] + at, fma(set1(skip), get(t.x[i] + at), sum[i][v]));
    }
  }
}

template <int kCount>
void scan_tokens(const ts_ssd_scan_args& a, int64_t head, int64_t row, float* state) {
  Tokens t;
  const int64_t group = head / (a.x.heads / a.b.heads), width = a.x.dim, numbers = a.b.dim;
  const Vec least = set1(static_cast<float>(a.dt_least)), most = set1(static_cast<float>(a.dt_most));
  float asked[kLanes] = {};
  for (int i = 0; i < kCount; ++i) {
    const int64_t r = row + i;
    asked[i] = a.dt.data[r * a.dt.stride + head] + a.dt_bias.data[head];
    t.b[i] = a.b.data + r * a.b.stride + group * numbers;
    t.c[i] = a.c.data + r * a.c.stride + group * numbers;
    t.x[i] = a.x.data + r * a.x.stride + head * width;
    t.out[i] = a.out.data + r * a.out.stride + head * width;
  }
  const Vec step = min(most, max(least, softplus(load(asked))));  // NaN stays NaN, because it is the second operand
  store(t.step, step);
  store(t.left, exp(step * set1(a.decay.data[head])));
  const float skip = a.skip.data[head];
  int64_t first = 0;
  constexpr int64_t kWide = kTogether * kLanes;
  if (kCount == 1) {
    for (; first + kWide <= width; first += kWide) scan_columns<1, kTogether, true>(t, state, numbers, width, kLanes, first, skip);
  }
  for (; first + kLanes <= width; first += kLanes) scan_columns<kCount, 1, true>(t, state, numbers, width, kLanes, first, skip);
  if (first < width) scan_columns<kCount, 1, false>(t, state, numbers, width, width - first, first, skip);
}

void scan_task(const ts_ssd_scan_args& a, int64_t index) {
  const int64_t heads = a.x.heads, head = index % heads;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* state = span.state + head * a.b.dim * a.x.dim;
  int64_t done = 0;
  for (; done + kTokens <= span.count; done += kTokens) scan_tokens<kTokens>(a, head, span.first + done, state);
  for (; done < span.count; ++done) scan_tokens<1>(a, head, span.first + done, state);
}

}  // namespace

int32_t run(ts_context* context, const ts_ssd_scan_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<scan_task>(context, a.batch.count * a.x.heads, a);
  return TS_OK;
}

}  // namespace twostroke
