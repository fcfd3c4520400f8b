// weigh_streams: weighted sums of the streams of a row, a thread four elements.
// Knows: fours.h. Must not know: models.
#include "twostroke/cuda/fours.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(weigh_streams, MixArgs) {
  const FourPlace e = four_place(args.parts, args.made * args.width);
  const uint32_t width = static_cast<uint32_t>(args.width);
  const int32_t together = width % 4 == 0 ? e.count : 1;  // elements of one stream
  for (int32_t i = 0; i < e.count; i += together) {
    const uint32_t at = static_cast<uint32_t>(e.at + i), stream = at / width;
    const float *x = args.x + e.row * args.x_stride + (at - stream * width), *weights = args.weights + e.row * args.weights_stride + stream * args.read;
    Four sum = load_four(x, together);
    TS_EACH_OF_FOUR sum.v[i] = weights[0] * sum.v[i];
    for (int64_t m = 1; m < args.read; ++m) {
      const Four read = load_four(x + m * args.width, together);
      TS_EACH_OF_FOUR sum.v[i] += weights[m] * read.v[i];
    }
    store_four(args.out + e.row * args.out_stride + at, sum, together);
  }
}

}  // namespace cuda
}  // namespace twostroke
