// scale_columns: each column times its weight, or all by one. A thread four elements.
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

// gate: the weights. shared: 1 where there is one of all columns.
TS_KERNEL(scale_columns, ElementArgs) {
  const FourPlace e = four_place(args.parts, args.width);
  if (e.count == 0) return;
  float* at = args.out + e.row * args.out_stride + e.at;
  Four x = load_four(at, e.count);
  if (args.shared != 0) {
    const float weight = args.gate[0];
    TS_EACH_OF_FOUR x.v[i] *= weight;
  } else {
    const Four weights = load_four(args.gate + e.at, e.count);
    TS_EACH_OF_FOUR x.v[i] *= weights.v[i];
  }
  store_four(at, x, e.count);
}

}  // namespace cuda
}  // namespace twostroke
