// wkv4: the scan of RWKV-4. A task is a block of channels of one sequence; a vector of them and of its three states stays in registers for
// all tokens of the step. Channels are independent, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/rows/activation.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kChannelsPerTask = 64;

// Computes `part` channels from `first` on. before: the position of the span's first row.
void scan(const ts_wkv4_args& a, const Span& span, int64_t before, int64_t first, int64_t part) {
  const int64_t channels = width_of(a.k);
  const Vec bonus = load_part(a.first.data + first, part, 0.0f), decay = load_part(a.decay.data + first, part, 0.0f);
  float* state = span.state + first;
  Vec num = load_part(state, part, 0.0f), den = load_part(state + channels, part, 0.0f), most = load_part(state + 2 * channels, part, 0.0f);
  if (before == 0 && span.count > 0) {
    num = den = zero();
    most = set1(kBeforeTheFirst);
  }
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const Vec key = load_part(a.k.data + row * a.k.stride + first, part, 0.0f), value = load_part(a.v.data + row * a.v.stride + first, part, 0.0f);
    const Vec seen = key + bonus, largest = max(most, seen);
    const Vec kept = exp(most - largest), added = exp(seen - largest);
    store_part(a.out.data + row * a.out.stride + first, part, fma(kept, num, added * value) / fma(kept, den, added));
    const Vec older = most + decay, next = max(older, key);
    const Vec held = exp(older - next), own = exp(key - next);
    num = fma(held, num, own * value);
    den = fma(held, den, own);
    most = next;
  }
  store_part(state, part, num);
  store_part(state + channels, part, den);
  store_part(state + 2 * channels, part, most);
}

void scan_task(const ts_wkv4_args& a, int64_t index) {
  const int64_t channels = width_of(a.k), blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask, s = index / blocks;
  const Span span = span_of(a.state, a.slots, a.batch, s);
  const int64_t begin = index % blocks * kChannelsPerTask;
  const int64_t end = begin + kChannelsPerTask < channels ? begin + kChannelsPerTask : channels;
  for (int64_t first = begin; first < end; first += kLanes)
    scan(a, span, a.batch.context_tokens[s] - span.count, first, end - first < kLanes ? end - first : kLanes);
}

}  // namespace

int32_t run(ts_context* context, const ts_wkv4_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t blocks = (width_of(a.k) + kChannelsPerTask - 1) / kChannelsPerTask;
  share_tasks<scan_task>(context, a.batch.count * blocks, a);
  return TS_OK;
}

}  // namespace twostroke
