// rg_lru: the recurrence of Griffin. A task is a block of channels of one sequence; a vector of them stays in registers for all tokens of
// the step. Channels are independent, so bits do not depend on how a sequence is cut into steps.
#include "twostroke/rows/activation.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kChannelsPerTask = 64;

// Computes `part` channels from `first` on. before: the position of the span's first row.
void recur(const ts_rg_lru_args& a, const Span& span, int64_t before, int64_t first, int64_t part) {
  const auto get = [&](const ts_value& value, int64_t row) { return load_part(value.data + row * value.stride + first, part, 0.0f); };
  const Vec rate = set1(-8.0f) * softplus(load_part(a.rates.data + first, part, 0.0f)), one = set1(1.0f);
  Vec state = load_part(span.state + first, part, 0.0f);
  for (int64_t t = 0; t < span.count; ++t) {
    const int64_t row = span.first + t;
    const Vec input = get(a.x, row) * sigmoid(get(a.input_gate, row)), exponent = rate * sigmoid(get(a.recurrent_gate, row));
    const Vec added = sqrt(max(one - exp(exponent + exponent), zero()));
    state = before + t == 0 ? input : fma(exp(exponent), state, added * input);
    store_part(a.out.data + row * a.out.stride + first, part, state);
  }
  store_part(span.state + first, part, state);
}

void recur_task(const ts_rg_lru_args& a, int64_t index) {
  const int64_t channels = width_of(a.x), blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask, s = index / blocks;
  const Span span = span_of(a.state, a.slots, a.batch, s);
  const int64_t begin = index % blocks * kChannelsPerTask;
  const int64_t end = begin + kChannelsPerTask < channels ? begin + kChannelsPerTask : channels;
  for (int64_t first = begin; first < end; first += kLanes)
    recur(a, span, a.batch.context_tokens[s] - span.count, first, end - first < kLanes ? end - first : kLanes);
}

}  // namespace

int32_t run(ts_context* context, const ts_rg_lru_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t blocks = (width_of(a.x) + kChannelsPerTask - 1) / kChannelsPerTask;
  share_tasks<recur_task>(context, a.batch.count * blocks, a);
  return TS_OK;
}

}  // namespace twostroke
