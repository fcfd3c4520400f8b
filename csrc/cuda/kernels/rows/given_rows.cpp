// replace_rows and join_rows, the ops for rows of images. A thread has four elements.
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(replace_rows, ts_replace_rows_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  const bool marked = args.marks.data[e.row] != 0;
  Four made = load_four((marked && args.added == 0 ? args.given.data + e.row * args.given.stride : args.x.data + e.row * args.x.stride) + e.at, e.count);
  if (marked && args.added != 0) {
    const Four given = load_four(args.given.data + e.row * args.given.stride + e.at, e.count);
    TS_EACH_OF_FOUR made.v[i] = made.v[i] + given.v[i];
  }
  store_four(args.out.data + e.row * args.out.stride + e.at, made, e.count);
}

// Four elements of a joined row may lie in up to four rows of x.
TS_KERNEL(join_rows, ts_join_rows_args) {
  const FourPlace e = four_place(width_of(args.out));
  if (e.count == 0) return;
  const uint32_t narrow = static_cast<uint32_t>(width_of(args.x)), together = static_cast<uint32_t>(width_of(args.out)) / narrow;
  const uint32_t at = static_cast<uint32_t>(e.at);
  const int64_t first = static_cast<int64_t>(args.rows.data[e.row]) * together;
  Four made;
  if (narrow % 4 == 0) {
    const uint32_t row = at / narrow;
    made = load_four(args.x.data + (first + row) * args.x.stride + (at - row * narrow), e.count);
  } else {
    TS_EACH_OF_FOUR {
      const uint32_t row = (at + i) / narrow;
      made.v[i] = i < e.count ? args.x.data[(first + row) * args.x.stride + (at + i - row * narrow)] : 0.0f;
    }
  }
  store_four(args.out.data + e.row * args.out.stride + e.at, made, e.count);
}

}  // namespace cuda
}  // namespace twostroke
