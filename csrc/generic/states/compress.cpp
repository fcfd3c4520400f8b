// compress: makes entries of several tokens each, by an online softmax over the tokens of each channel. A task is a block of channels of
// one sequence. It reads and replaces these channels' part of the state, which no other task touches.
#include <string.h>

#include "twostroke/simd.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kChannelsPerTask = 128;
constexpr float kNoGate = -3.0e38f;
constexpr float kLog2OfE = 1.44269504088896341f;

// One open entry: `count` channels of three rows, each of `dim` numbers.
struct Open {
  float *peak, *total, *sum;

  Open(float* state, int64_t dim) : peak(state), total(state + dim), sum(state + 2 * dim) {}

  void clear(int64_t count) const {
    for (int64_t i = 0; i < count; ++i) peak[i] = kNoGate;
    memset(total, 0, static_cast<size_t>(count) * sizeof(float));
    memset(sum, 0, static_cast<size_t>(count) * sizeof(float));
  }

  void copy(const Open& from, int64_t count) const {
    memcpy(peak, from.peak, static_cast<size_t>(count) * sizeof(float));
    memcpy(total, from.total, static_cast<size_t>(count) * sizeof(float));
    memcpy(sum, from.sum, static_cast<size_t>(count) * sizeof(float));
  }

  void add(const float* values, const float* gates, const float* bias, int64_t count) const {
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t n = count - i < kLanes ? count - i : kLanes;
      const Vec gate = (load_part(gates + i, n, 0.0f) + load_part(bias + i, n, 0.0f)) * set1(kLog2OfE);
      const Vec before = load_part(peak + i, n, 0.0f), now = max(gate, before);
      const Vec kept = exp2_negative(before - now), weight = exp2_negative(gate - now);
      store_part(peak + i, n, now);
      store_part(total + i, n, fma(load_part(total + i, n, 0.0f), kept, weight));
      store_part(sum + i, n, fma(load_part(sum + i, n, 0.0f), kept, weight * load_part(values + i, n, 0.0f)));
    }
  }
};

void compress_task(const ts_compress_args& a, int64_t index) {
  const int64_t dim = width_of(a.out), blocks = (dim + kChannelsPerTask - 1) / kChannelsPerTask, s = index / blocks;
  const int64_t series = width_of(a.x) / (2 * dim), first = index % blocks * kChannelsPerTask;
  const int64_t count = dim - first < kChannelsPerTask ? dim - first : kChannelsPerTask;
  const Span span = span_of(a.state, a.slots, a.batch, s);
  const Open now(span.state + first, dim), next(span.state + (series - 1) * 3 * dim + first, dim);
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t position = a.batch.context_tokens[s] - span.count + t, place = position % a.rate;
    if (place == 0) {
      if (series == 2 && position > 0) now.copy(next, count);
      if (series == 1 || position == 0) now.clear(count);
      if (series == 2) next.clear(count);
    }
    const float* values = a.x.data + (span.first + t) * a.x.stride + first;
    const float *gates = values + series * dim, *bias = a.bias.data + place * series * dim + first;
    const int64_t own = (series - 1) * dim;  // the last series belongs to the entry that closes next
    now.add(values + own, gates + own, bias + own, count);
    if (series == 2) next.add(values, gates, bias, count);
    float* out = a.out.data + (span.first + t) * a.out.stride + first;
    const bool closes = place == a.rate - 1;
    for (int64_t i = 0; i < count; ++i) out[i] = closes ? now.sum[i] / now.total[i] : 0.0f;
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_compress_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<compress_task>(context, a.batch.count * ((width_of(a.out) + kChannelsPerTask - 1) / kChannelsPerTask), a);
  return TS_OK;
}

}  // namespace twostroke
