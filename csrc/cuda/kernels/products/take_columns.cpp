// take_columns: out = x[:, order], with four elements for each thread. An entry that is no column gives NaN, because the host cannot see
// it.
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(take_columns, ts_take_columns_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  const float *x = args.x.data + e.row * args.x.stride, end = static_cast<float>(width_of(args.x));
  Four four = load_four(args.order.data + e.at, e.count);
  TS_EACH_OF_FOUR {
    const float from = four.v[i];
    four.v[i] = i >= e.count ? 0.0f : from >= 0.0f && from < end ? x[static_cast<int32_t>(from)] : __builtin_nanf("");
  }
  store_four(args.out.data + e.row * args.out.stride + e.at, four, e.count);
}

}  // namespace cuda
}  // namespace twostroke
