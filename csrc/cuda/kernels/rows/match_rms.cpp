// match_rms: scales a row to the root mean square of another row. A block has one row.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(match_rms, NormArgs) {
  float* x = args.out + block_index() * args.out_stride;
  const float* like = args.x + block_index() * args.x_stride;
  const float count = static_cast<float>(args.columns);
  const float own = sum_by_lanes(args.columns, [&](int32_t i) { return x[i]; }, AddSquare()) / count;
  const float wanted = sum_by_lanes(args.columns, [&](int32_t i) { return like[i]; }, AddSquare()) / count;
  const float factor = __builtin_sqrtf(wanted) / __builtin_sqrtf(own < args.eps ? args.eps : own);
  for (int64_t i = thread_index(); i < args.columns; i += threads()) x[i] *= factor;
}

}  // namespace cuda
}  // namespace twostroke
