// short_conv: a convolution with a few taps over the tokens of each sequence, channel by channel. A task is a block of channels of one
// sequence. It reads and replaces these channels' part of the state, which no other task touches.
#include <string.h>

#include "twostroke/rows/activation.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kChannelsPerTask = 256;

// The channels from `first` on of one sequence.
struct Channels {
  const float* x;  // row 0 of x, at channel `first`
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* taps;  // taps (width, all channels), at channel `first`
  const float* bias;  // the bias at channel `first`, or NULL
  float* tail;  // the state (width - 1, all channels), at channel `first`
  int64_t all, count, width, tokens;

  // A row of this step. A negative number is a row of the state: -1 is the row just before the first one.
  const float* row(int64_t token) const { return token < 0 ? tail + (width - 1 + token) * all : x + token * x_stride; }
};

template <class Function>
TS_VECTOR_INLINE void conv_rows(const Channels& c, const Function& function) {
  for (int64_t t = 0; t < c.tokens; ++t) {
    float* out = c.out + t * c.out_stride;
    int64_t i = 0;
    for (; i + kLanes <= c.count; i += kLanes) {
      Vec sum = c.bias == nullptr ? zero() : load(c.bias + i);
      for (int64_t j = 0; j < c.width; ++j) sum = fma(load(c.taps + j * c.all + i), load(c.row(t - c.width + 1 + j) + i), sum);
      store(out + i, function(sum));
    }
    if (i < c.count) {
      const int64_t rest = c.count - i;
      Vec sum = c.bias == nullptr ? zero() : load_part(c.bias + i, rest, 0.0f);
      for (int64_t j = 0; j < c.width; ++j)
        sum = fma(load_part(c.taps + j * c.all + i, rest, 0.0f), load_part(c.row(t - c.width + 1 + j) + i, rest, 0.0f), sum);
      store_part(out + i, rest, function(sum));
    }
  }
}

// Stores the last width - 1 inputs, the oldest first; some may come from the old state. Row k comes from row k + tokens >= k, so this order
// overwrites nothing that is still needed.
void keep_tail(const Channels& c) {
  if (c.tokens == 0) return;
  for (int64_t k = 0; k < c.width - 1; ++k)
    memmove(c.tail + k * c.all, c.row(c.tokens - c.width + 1 + k), static_cast<size_t>(c.count) * sizeof(float));
}

void conv_task(const ts_short_conv_args& a, int64_t index) {
  const int64_t all = width_of(a.x), blocks = (all + kChannelsPerTask - 1) / kChannelsPerTask;
  const int64_t first = index % blocks * kChannelsPerTask;
  const Span span = span_of(a.state, a.slots, a.batch, index / blocks);
  const Channels channels = {
      a.x.data + span.first * a.x.stride + first,
      a.x.stride,
      a.out.data + span.first * a.out.stride + first,
      a.out.stride,
      a.taps.data + first,
      a.bias.data == nullptr ? nullptr : a.bias.data + first,
      span.state + first,
      all,
      all - first < kChannelsPerTask ? all - first : kChannelsPerTask,
      a.taps.length / all,
      span.count,
  };
  with_activation(a.activation, [&](const auto& function) { conv_rows(channels, function); });
  keep_tail(channels);
}

}  // namespace

int32_t run(ts_context* context, const ts_short_conv_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t blocks = (width_of(a.x) + kChannelsPerTask - 1) / kChannelsPerTask;
  share_tasks<conv_task>(context, a.batch.count * blocks, a);
  return TS_OK;
}

}  // namespace twostroke
