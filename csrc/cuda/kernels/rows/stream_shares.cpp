// stream_shares: computes how a block of a model reads streams and adds to them. A block of threads has one row. A thread has a line of the
// square matrix, its rows and its columns in turn.
#include "twostroke/checks.h"
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, wide_shares, (2 + kMostMixedStreams) * kMostMixedStreams);
TS_SHARED(float, share_square, kMostMixedStreams* kMostMixedStreams);

// Divides the thread's line by the sum of its numbers and eps. The line begins at `first`, and its numbers are `step` apart.
TS_DEVICE_INLINE void divide_line(int64_t first, int64_t step, int64_t n, float eps) {
  if (thread_index() < n) {
    float sum = 0.0f;
    for (int64_t j = 0; j < n; ++j) sum += share_square[first + j * step];
    for (int64_t j = 0; j < n; ++j) share_square[first + j * step] = share_square[first + j * step] / (sum + eps);
  }
  barrier();
}

// Replaces the thread's row by its softmax plus eps; by NaN where a number of it is not finite.
TS_DEVICE_INLINE void soften_row(int64_t n, float eps) {
  const int64_t row = thread_index(), from = 2 * n + row * n;
  float largest = wide_shares[from], sum = 0.0f;
  for (int64_t k = 1; k < n; ++k) {
    const float number = wide_shares[from + k];
    largest = number > largest ? number : largest;
  }
  for (int64_t k = 0; k < n; ++k) {
    const float power = exp(wide_shares[from + k] - largest);
    share_square[row * n + k] = power;
    sum += power;
  }
  for (int64_t k = 0; k < n; ++k) {
    const float number = wide_shares[from + k];
    share_square[row * n + k] = share_square[row * n + k] / sum + eps + (number - number);
  }
}

TS_KERNEL(stream_shares, ts_stream_shares_args) {
  const float eps = static_cast<float>(args.eps);
  const int64_t width = width_of(args.x), n = args.streams, thread = thread_index();
  const float* x = args.x.data + block_index() * args.x.stride;
  float* out = args.out.data + block_index() * args.out.stride;
  for (int64_t i = thread; i < width; i += threads()) wide_shares[i] = x[i] * args.factor.data[i < n ? 0 : i < 2 * n ? 1 : 2] + args.base.data[i];
  barrier();
  if (thread < n) out[thread] = sigmoid(wide_shares[thread]) + eps;
  if (width == n) return;
  if (thread < n) {
    out[n + thread] = 2.0f * sigmoid(wide_shares[n + thread]);
    soften_row(n, eps);
  }
  barrier();
  divide_line(thread, n, n, eps);
  for (int64_t round = 1; round < args.rounds; ++round) {
    divide_line(thread * n, 1, n, eps);
    divide_line(thread, n, n, eps);
  }
  for (int64_t i = thread; i < n * n; i += threads()) out[2 * n + i] = share_square[i % n * n + i / n];
}

}  // namespace cuda
}  // namespace twostroke
