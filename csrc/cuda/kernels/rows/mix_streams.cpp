// mix_streams: each new stream is its base plus a weighted sum of the streams that are read.
#include "twostroke/cuda/rows/streams.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(mix_streams, ts_mix_streams_args) {
  const float shift = static_cast<float>(args.shift);
  make_streams(args, [&](int64_t row, uint32_t at, const float* x, const float* weights, int32_t count) {
    Four sum = load_four(args.base.data + row * args.base.stride + at, count);
    for (int64_t m = 0; m < args.x.heads; ++m) {
      const Four read = load_four(x + m * args.out.dim, count);
      const float weight = weights[m] + shift;
      TS_EACH_OF_FOUR sum.v[i] += weight * read.v[i];
    }
    return sum;
  });
}

}  // namespace cuda
}  // namespace twostroke
