// gaussian_cut: the cut of a row is mean + factor * deviation. Numbers of the row below the cut become 0, and the cut is subtracted from
// the others. A block has one row.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(gaussian_cut, ts_gaussian_cut_args) {
  float* x = args.out.data + block_index() * args.out.stride;
  const int64_t columns = width_of(args.out);
  const float count = static_cast<float>(columns);
  const float mean = sum_by_lanes(columns, [&](int32_t i) { return x[i]; }, AddValue()) / count;
  const float squares = sum_by_lanes(columns, [&](int32_t i) { return x[i] - mean; }, AddSquare());
  const float cut = mean + static_cast<float>(args.factor) * __builtin_sqrtf(squares / count);
  for (int64_t i = thread_index(); i < columns; i += threads()) x[i] = x[i] < cut ? 0.0f : x[i] - cut;  // NaN stays NaN
}

}  // namespace cuda
}  // namespace twostroke
