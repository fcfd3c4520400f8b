// layer_norm. One pass for the mean, one for the squares of the distances from it, one for the result. Each sum is sixteen partial
// sums, then one fixed tree: a row's bits depend on that row alone.
// Knows: simd.h, the thread pool. Must not know: models.
#include "twostroke/context.h"
#include "twostroke/ops.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

constexpr int64_t kRowsPerTask = 8;

// Sixteen lanes of the result.
TS_VECTOR_INLINE Vec normed(Vec x, Vec mean, Vec scale, Vec weight, Vec bias) { return fma((x - mean) * scale, weight, bias); }

// in and out may be the same row.
void layer_norm_row(const float* in, const float* weight, const float* bias, float eps, int64_t columns, float* out) {
  const int64_t rest = columns % kLanes, whole = columns - rest;
  const float count = static_cast<float>(columns);
  Vec sums = zero();
  for (int64_t i = 0; i < whole; i += kLanes) sums = sums + load(in + i);
  if (rest > 0) sums = sums + load_part(in + whole, rest, 0.0f);
  const float average = reduce_add(sums) / count;
  const Vec mean = set1(average);
  Vec squares = zero();
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec distance = load(in + i) - mean;
    squares = fma(distance, distance, squares);
  }
  if (rest > 0) {
    const Vec distance = load_part(in + whole, rest, average) - mean;  // 0 in the lanes beyond the row
    squares = fma(distance, distance, squares);
  }
  const Vec scale = set1(1.0f / sqrtf(reduce_add(squares) / count + eps));
  for (int64_t i = 0; i < whole; i += kLanes)
    store(out + i, normed(load(in + i), mean, scale, load(weight + i), bias == nullptr ? zero() : load(bias + i)));
  if (rest > 0) {
    const Vec last_bias = bias == nullptr ? zero() : load_part(bias + whole, rest, 0.0f);
    const Vec last = normed(load_part(in + whole, rest, 0.0f), mean, scale, load_part(weight + whole, rest, 0.0f), last_bias);
    store_part(out + whole, rest, last);
  }
}

void layer_norm_task(void* arg, int64_t index, int32_t) {
  const ts_layer_norm_args& a = *static_cast<const ts_layer_norm_args*>(arg);
  const int64_t first = index * kRowsPerTask;
  const int64_t last = first + kRowsPerTask < a.x.rows ? first + kRowsPerTask : a.x.rows;
  for (int64_t row = first; row < last; ++row)
    layer_norm_row(a.x.data + row * a.x.stride, a.weight.data, a.bias.data, static_cast<float>(a.eps), width_of(a.x),
                   a.out.data + row * a.out.stride);
}

}  // namespace

int32_t run(ts_context* context, const ts_layer_norm_args& a) {
  const int64_t width = width_of(a.x);
  if (width < 1 || a.out.rows != a.x.rows || width_of(a.out) != width || a.weight.length != width) return TS_BAD_SHAPE;
  if (a.bias.data != nullptr && a.bias.length != width) return TS_BAD_SHAPE;
  ts_parallel(context, (a.x.rows + kRowsPerTask - 1) / kRowsPerTask, layer_norm_task, const_cast<ts_layer_norm_args*>(&a));
  return TS_OK;
}

}  // namespace twostroke
