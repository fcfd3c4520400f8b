// take_columns: out = x[:, order], a thread an element. An entry that is no column gives NaN: the host cannot see it.
// Knows: arguments.h. Must not know: where the order comes from.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/simt.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(take_columns, TakeArgs) {
  const int64_t row = block_index() / args.parts, at = block_index() % args.parts * threads() + thread_index();
  if (at >= args.width) return;
  const float from = args.order[at];
  const bool there = from >= 0.0f && from < static_cast<float>(args.from);
  args.out[row * args.out_stride + at] = there ? args.x[row * args.x_stride + static_cast<int32_t>(from)] : __builtin_nanf("");
}

}  // namespace cuda
}  // namespace twostroke
