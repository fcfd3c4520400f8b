// replace_rows and join_rows, the ops for rows of images. A thread has four elements.
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(replace_rows, GivenArgs) {
  const FourPlace e = four_place(args.parts, args.width);
  if (e.count == 0) return;
  const bool marked = args.marks[e.row] != 0;
  Four made = load_four((marked && args.added == 0 ? args.given + e.row * args.given_stride : args.x + e.row * args.x_stride) + e.at, e.count);
  if (marked && args.added != 0) {
    const Four given = load_four(args.given + e.row * args.given_stride + e.at, e.count);
    TS_EACH_OF_FOUR made.v[i] = made.v[i] + given.v[i];
  }
  store_four(args.out + e.row * args.out_stride + e.at, made, e.count);
}

// Four elements of a joined row may lie in up to four rows of x.
TS_KERNEL(join_rows, JoinArgs) {
  const FourPlace e = four_place(args.parts, args.width);
  if (e.count == 0) return;
  const uint32_t narrow = static_cast<uint32_t>(args.narrow), at = static_cast<uint32_t>(e.at);
  const int64_t first = static_cast<int64_t>(args.rows[e.row]) * (args.width / args.narrow);
  Four made;
  if (narrow % 4 == 0) {
    const uint32_t row = at / narrow;
    made = load_four(args.x + (first + row) * args.x_stride + (at - row * narrow), e.count);
  } else {
    TS_EACH_OF_FOUR {
      const uint32_t row = (at + i) / narrow;
      made.v[i] = i < e.count ? args.x[(first + row) * args.x_stride + (at + i - row * narrow)] : 0.0f;
    }
  }
  store_four(args.out + e.row * args.out_stride + e.at, made, e.count);
}

}  // namespace cuda
}  // namespace twostroke
