// scale_columns: each column times its weight, or all by one. A thread an element.
// Knows: arguments.h. Must not know: models.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/simt.h"

namespace twostroke {
namespace cuda {

// gate: the weights. shared: 1 where there is one of all columns.
TS_KERNEL(scale_columns, ElementArgs) {
  const int64_t row = block_index() / args.parts, at = block_index() % args.parts * threads() + thread_index();
  if (at < args.width) args.out[row * args.out_stride + at] *= args.gate[args.shared != 0 ? 0 : at];
}

}  // namespace cuda
}  // namespace twostroke
