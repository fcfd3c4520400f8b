// selective_scan: Mamba's scan. A task is a block of channels of one sequence, whose state stays in near caches for all tokens of the step.
// Each number of the state, and each sum over n, is computed in one order, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/simd.h"
#include "twostroke/rows/softplus.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kChannelsPerTask = 64;
constexpr int64_t kMostNumbers = 64;  // the most numbers of a channel's state that is copied for the step
constexpr int64_t kLeastTokens = 4;  // the fewest tokens for which the copy pays

// Rows of sixteen channels: rows of the state, which is changed, and rows of the decay. step: the distance from one row to the next.
struct Rows {
  float* state;
  const float* decay;
  int64_t step;
};

// Computes sixteen channels, from `first` on, for all tokens of a sequence. get and put access only the channels that exist.
template <class Get, class Put>
void scan_tokens(const ts_selective_scan_args& a, const Span& span, int64_t first, const Rows& rows, const Get& get, const Put& put) {
  const int64_t numbers = width_of(a.b);
  const Vec skip = get(a.skip.data + first);
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const Vec step = softplus(get(a.dt.data + row * a.dt.stride + first)), x = get(a.x.data + row * a.x.stride + first);
    const Vec inner = step * x;
    const float *b = a.b.data + row * a.b.stride, *c = a.c.data + row * a.c.stride;
    Vec sum = zero();
    for (int64_t n = 0; n < numbers; ++n) {
      float* at = rows.state + n * rows.step;
      const Vec h = fma(exp(step * get(rows.decay + n * rows.step)), get(at), set1(b[n]) * inner);
      sum = fma(set1(c[n]), h, sum);
      put(at, h);
    }
    put(a.out.data + row * a.out.stride + first, fma(skip, x, sum));
  }
}

// Rows of a state are as far apart as there are channels, which is often a power of two. Then all rows would share a few lines of the
// first-level cache. With several tokens, the rows are therefore copied to lie next to each other for the step.
template <bool kWhole>
void scan_channels(const ts_selective_scan_args& a, const Span& span, int64_t first, int64_t part) {
  const auto get = [part](const float* p) { return kWhole ? load(p) : load_part(p, part, 0.0f); };
  const auto put = [part](float* p, Vec v) {
    if (kWhole) store(p, v);
    else store_part(p, part, v);
  };
  const int64_t channels = width_of(a.x), numbers = width_of(a.b);
  const Rows there = {span.state + first, a.decay.data + first, channels};
  if (numbers > kMostNumbers || span.count < kLeastTokens) return scan_tokens(a, span, first, there, get, put);
  alignas(64) float state[kMostNumbers * kLanes], decay[kMostNumbers * kLanes];
  for (int64_t n = 0; n < numbers; ++n) {
    store(state + n * kLanes, get(there.state + n * channels));
    store(decay + n * kLanes, get(there.decay + n * channels));
  }
  scan_tokens(a, span, first, {state, decay, kLanes}, get, put);
  for (int64_t n = 0; n < numbers; ++n) put(there.state + n * channels, load(state + n * kLanes));
}

void scan_task(const ts_selective_scan_args& a, int64_t index) {
  const int64_t channels = width_of(a.x), blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const Span span = span_of(a.state, a.slots, a.batch, index / blocks);
  const int64_t begin = index % blocks * kChannelsPerTask;
  const int64_t end = begin + kChannelsPerTask < channels ? begin + kChannelsPerTask : channels;
  int64_t first = begin;
  for (; first + kLanes <= end; first += kLanes) scan_channels<true>(a, span, first, kLanes);
  if (first < end) scan_channels<false>(a, span, first, end - first);
}

}  // namespace

int32_t run(ts_context* context, const ts_selective_scan_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t blocks = (width_of(a.x) + kChannelsPerTask - 1) / kChannelsPerTask;
  share_tasks<scan_task>(context, a.batch.count * blocks, a);
  return TS_OK;
}

}  // namespace twostroke
