// mlstm: the scan of xLSTM's matrix memory. A block has one head of one sequence; a thread has some columns of its matrix.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(mlstm, ts_mlstm_args) {
  const int64_t heads = args.q.heads, head = block_index() % heads, s = block_index() / heads, rows = args.q.dim, width = args.v.dim;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(rows));
  const Span span = span_of(args, s);
  float* matrix = span.state + head * rows * width;
  float* sums = span.state + heads * rows * width + head * rows;
  float* largest = span.state + heads * rows * (width + 1) + head;
  float most = *largest;
  for (int64_t d = thread_index(); d < rows; d += threads()) kept_numbers[d] = sums[d];
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float *q = args.q.data + row * args.q.stride + head * rows, *k = args.k.data + row * args.k.stride + head * rows;
    const float input = args.input_gate.data[row * args.input_gate.stride + head];
    const float left = 0.0f - softplus(0.0f - args.forget_gate.data[row * args.forget_gate.stride + head]) + most;
    most = left > input ? left : input;
    const float kept = exp(left - most), added = exp(input - most);
    for (int64_t d = thread_index(); d < rows; d += threads()) kept_numbers[d] = fma(kept, kept_numbers[d], added * k[d]);
    barrier();
    float seen = 0.0f;
    for (int64_t d = 0; d < rows; ++d) seen = fma(q[d] * scale, kept_numbers[d], seen);
    barrier();  // after this, all threads have read the sums
    const float length = seen > 0.0f - seen ? seen : 0.0f - seen, least = exp(0.0f - most);
    const float below = (length > least ? length : least) + static_cast<float>(args.eps);
    for (int64_t j = thread_index(); j < width; j += threads()) {
      const float value = args.v.data[row * args.v.stride + head * width + j];
      float sum = 0.0f;
      for (int64_t d = 0; d < rows; ++d) {
        float* at = matrix + d * width + j;
        *at = fma(kept, *at, added * k[d] * value);
        sum = fma(q[d] * scale, *at, sum);
      }
      args.out.data[row * args.out.stride + head * width + j] = sum / below;
    }
  }
  for (int64_t d = thread_index(); d < rows; d += threads()) sums[d] = kept_numbers[d];
  barrier();  // after this, all threads have read the largest number
  if (thread_index() == 0) *largest = most;
}

}  // namespace cuda
}  // namespace twostroke
