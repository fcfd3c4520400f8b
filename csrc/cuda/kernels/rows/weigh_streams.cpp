// weigh_streams: weighted sums of the streams of a row, a thread an element.
// Knows: arguments.h. Must not know: models.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/simt.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(weigh_streams, MixArgs) {
  const int64_t row = block_index() / args.parts, at = block_index() % args.parts * threads() + thread_index();
  if (at >= args.made * args.width) return;
  const float *x = args.x + row * args.x_stride + at % args.width, *weights = args.weights + row * args.weights_stride + at / args.width * args.read;
  float sum = weights[0] * x[0];
  for (int64_t m = 1; m < args.read; ++m) sum += weights[m] * x[m * args.width];
  args.out[row * args.out_stride + at] = sum;
}

}  // namespace cuda
}  // namespace twostroke
