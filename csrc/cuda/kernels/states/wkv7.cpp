// wkv7: the scan of RWKV-7. A block has one head of one sequence; a thread has one column of its state.
#include "twostroke/cuda/rows/wkv.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, wkv7_left, kMostHeadRows);
TS_SHARED(float, wkv7_removed, kMostHeadRows);
TS_SHARED(float, wkv7_put, kMostHeadRows);
TS_SHARED(float, wkv7_key, kMostHeadRows);
TS_SHARED(float, wkv7_read, kMostHeadRows);

constexpr float kWkv7Decay = -0.6065306597126334f;  // the value -exp(-1/2)

// Prepares the decay of each row of the state, the direction that is removed and its replacement, and the new key. Returns the bonus.
TS_DEVICE_INLINE float prepare_wkv7(const ts_wkv7_args& args, int64_t row, int64_t at) {
  const float *r = args.r.data + row * args.r.stride + at, *k = args.k.data + row * args.k.stride + at, *a = args.a.data + row * args.a.stride + at;
  const auto kept = [&](int64_t i) { return k[i] * fma(sigmoid(a[i]) - 1.0f, args.growth.data[at + i], 1.0f); };
  const float squares = sum_by_lanes(args.v.dim, [&](int32_t i) { return k[i] * args.removal.data[at + i]; }, AddSquare());
  const auto add_bonus = [&](int32_t i, float value, float sum) { return fma(value, args.bonus.data[at + i], sum); };
  const float bonus = sum_by_lanes(args.v.dim, [&](int32_t i) { return r[i] * kept(i); }, add_bonus);
  const float length = __builtin_sqrtf(squares), scale = 1.0f / (length > 1e-12f ? length : 1e-12f);
  for (int64_t i = thread_index(); i < args.v.dim; i += threads()) {
    const float raw = args.w.data[row * args.w.stride + at + i], unit = k[i] * args.removal.data[at + i] * scale;
    wkv7_left[i] = exp(kWkv7Decay * sigmoid(raw)) + nan_unless_finite(raw);
    wkv7_removed[i] = 0.0f - unit;
    wkv7_put[i] = unit * sigmoid(a[i]);
    wkv7_key[i] = kept(i);
    wkv7_read[i] = r[i];
  }
  barrier();
  return bonus;
}

// All threads of the block call it, those after the last column too. width: at most the number of threads.
template <class Column>
TS_DEVICE_INLINE void go_through_wkv7(const ts_wkv7_args& args, int64_t head, const Span& span) {
  const int64_t width = args.v.dim, at = head * width, own = thread_index();
  const bool is_one = own < width;
  Column column(span.state + head * width * width + (is_one ? own : 0), is_one ? width : 0, width);
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    float* out = args.out.data + row * args.out.stride + at;
    const float bonus = prepare_wkv7(args, row, at);
    const float v = is_one ? args.v.data[row * args.v.stride + at + own] : 0.0f;
    if (is_one) {
      float seen = 0.0f, sum = 0.0f;
      column.look([&](int64_t j, float number) { seen = fma(wkv7_removed[j], number, seen); });
      column.change([&](int64_t j, float& number) {
        number = fma(wkv7_key[j], v, fma(wkv7_put[j], seen, number * wkv7_left[j]));
        sum = fma(wkv7_read[j], number, sum);
      });
      out[own] = sum;
    }
    norm_of_head(out, args.weight.data + at, args.bias.data + at, static_cast<float>(args.eps), width);
    if (is_one) out[own] = fma(bonus, v, out[own]);
  }
  if (is_one) column.end();
}

TS_KERNEL(wkv7, ts_wkv7_args) {
  const Span span = span_of(args, block_index() / args.v.heads);
  if (args.v.dim * threads() <= kKeptNumbers) {
    go_through_wkv7<KeptColumn>(args, block_index() % args.v.heads, span);
  } else {
    go_through_wkv7<LongColumn>(args, block_index() % args.v.heads, span);
  }
}

}  // namespace cuda
}  // namespace twostroke
