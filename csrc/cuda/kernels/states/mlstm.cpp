// mlstm: the scan of xLSTM's matrix memory. A block has one head of one sequence; a thread has some columns of its matrix.
#include "twostroke/cuda/rows/states.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(mlstm, MlstmArgs) {
  const int64_t head = block_index() % args.heads, s = block_index() / args.heads, rows = args.rows, width = args.width;
  const Span span = span_of(args.state, s);
  float* matrix = span.state + head * rows * width;
  float* sums = span.state + args.heads * rows * width + head * rows;
  float* largest = span.state + args.heads * rows * (width + 1) + head;
  float most = *largest;
  for (int64_t d = thread_index(); d < rows; d += threads()) kept_numbers[d] = sums[d];
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const float *q = args.q + row * args.q_stride + head * rows, *k = args.k + row * args.k_stride + head * rows;
    const float input = args.input_gate[row * args.input_stride + head];
    const float left = 0.0f - softplus(0.0f - args.forget_gate[row * args.forget_stride + head]) + most;
    most = left > input ? left : input;
    const float kept = exp(left - most), added = exp(input - most);
    for (int64_t d = thread_index(); d < rows; d += threads()) kept_numbers[d] = fma(kept, kept_numbers[d], added * k[d]);
    barrier();
    float seen = 0.0f;
    for (int64_t d = 0; d < rows; ++d) seen = fma(q[d] * args.scale, kept_numbers[d], seen);
    barrier();  // after this, all threads have read the sums
    const float length = seen > 0.0f - seen ? seen : 0.0f - seen, least = exp(0.0f - most);
    const float below = (length > least ? length : least) + args.eps;
    for (int64_t j = thread_index(); j < width; j += threads()) {
      const float value = args.v[row * args.v_stride + head * width + j];
      float sum = 0.0f;
      for (int64_t d = 0; d < rows; ++d) {
        float* at = matrix + d * width + j;
        *at = fma(kept, *at, added * k[d] * value);
        sum = fma(q[d] * args.scale, *at, sum);
      }
      args.out[row * args.out_stride + head * width + j] = sum / below;
    }
  }
  for (int64_t d = thread_index(); d < rows; d += threads()) sums[d] = kept_numbers[d];
  barrier();  // after this, all threads have read the largest number
  if (thread_index() == 0) *largest = most;
}

}  // namespace cuda
}  // namespace twostroke
