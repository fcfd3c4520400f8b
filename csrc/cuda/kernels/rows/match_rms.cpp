// match_rms: scales a row to the root mean square of another row. A block has one row.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(match_rms, ts_match_rms_args) {
  float* x = args.out.data + block_index() * args.out.stride;
  const float* like = args.like.data + block_index() * args.like.stride;
  const int64_t columns = width_of(args.out);
  const float count = static_cast<float>(columns), least = static_cast<float>(args.least);
  const float own = sum_by_lanes(columns, [&](int32_t i) { return x[i]; }, AddSquare()) / count;
  const float wanted = sum_by_lanes(columns, [&](int32_t i) { return like[i]; }, AddSquare()) / count;
  const float factor = __builtin_sqrtf(wanted) / __builtin_sqrtf(own < least ? least : own);
  for (int64_t i = thread_index(); i < columns; i += threads()) x[i] *= factor;
}

}  // namespace cuda
}  // namespace twostroke
