// weigh_streams: computes weighted sums of the streams of a row.
#include "twostroke/cuda/rows/streams.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(weigh_streams, ts_weigh_streams_args) {
  make_streams(args, [&](int64_t, uint32_t, const float* x, const float* weights, int32_t count) {
    Four sum = load_four(x, count);
    TS_EACH_OF_FOUR sum.v[i] = weights[0] * sum.v[i];
    for (int64_t m = 1; m < args.x.heads; ++m) {
      const Four read = load_four(x + m * args.out.dim, count);
      TS_EACH_OF_FOUR sum.v[i] += weights[m] * read.v[i];
    }
    return sum;
  });
}

}  // namespace cuda
}  // namespace twostroke
