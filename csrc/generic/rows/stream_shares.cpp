// stream_shares: computes how a block of a model reads streams and adds to them. A task is one row.
#include "twostroke/rows/activation.h"
#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kMostShares = (2 + kMostMixedStreams) * kMostMixedStreams;

// Divides each number by the sum of its line and eps. A line has `n` numbers, `step` apart; lines begin `line` apart.
void divide_lines(float* square, int64_t n, int64_t line, int64_t step, float eps) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < n; ++j) sum += square[i * line + j * step];
    for (int64_t j = 0; j < n; ++j) square[i * line + j * step] /= sum + eps;
  }
}

void shares_of_row(const ts_stream_shares_args& a, int64_t row) {
  const int64_t n = a.streams, width = width_of(a.x);
  const float *x = a.x.data + row * a.x.stride, eps = static_cast<float>(a.eps);
  float* out = a.out.data + row * a.out.stride;
  float wide[kMostShares + kLanes] = {}, shares[2 * kMostMixedStreams + kLanes];
  for (int64_t i = 0; i < width; ++i) wide[i] = x[i] * a.factor.data[i < n ? 0 : i < 2 * n ? 1 : 2] + a.base.data[i];
  for (int64_t i = 0; i < 2 * n; i += kLanes) store(shares + i, sigmoid(load(wide + i)));
  for (int64_t i = 0; i < n; ++i) out[i] = shares[i] + eps;
  if (width == n) return;
  for (int64_t i = n; i < 2 * n; ++i) out[i] = 2.0f * shares[i];
  float square[kMostMixedStreams * kMostMixedStreams + kLanes];
  for (int64_t j = 0; j < n; ++j) {
    const float* from = wide + 2 * n + j * n;
    float largest = from[0], sum = 0.0f, powers[kLanes];
    for (int64_t k = 1; k < n; ++k) largest = from[k] > largest ? from[k] : largest;
    store(powers, exp(load_part(from, n, 0.0f) - set1(largest)));
    for (int64_t k = 0; k < n; ++k) sum += powers[k];
    for (int64_t k = 0; k < n; ++k) square[j * n + k] = powers[k] / sum + eps + (from[k] - from[k]);  // NaN where a number is not finite
  }
  divide_lines(square, n, 1, n, eps);
  for (int64_t round = 1; round < a.rounds; ++round) {
    divide_lines(square, n, n, 1, eps);
    divide_lines(square, n, 1, n, eps);
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = 0; k < n; ++k) out[2 * n + k * n + j] = square[j * n + k];
}

}  // namespace

int32_t run(ts_context* context, const ts_stream_shares_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<shares_of_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
