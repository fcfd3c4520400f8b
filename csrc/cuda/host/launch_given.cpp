// The launcher of the op for rows that come from images.
#include "twostroke/cuda/host/launch.h"

namespace twostroke {
namespace cuda {
int32_t launch(ts_context& device, const ts_replace_rows_args& a) {
  const int64_t width = width_of(a.out);
  if (a.out.rows != a.x.rows || a.out.rows != a.given.rows || a.out.rows != a.marks.count) return TS_BAD_SHAPE;
  if (width != width_of(a.x) || width != width_of(a.given)) return TS_BAD_SHAPE;
  const int32_t* marks = mirrored(device, a.marks.data, a.marks.count);
  if (marks == nullptr) return TS_BAD_POINTER;
  const GivenArgs args = {a.out.data, a.x.data, a.given.data, marks, a.out.stride, a.x.stride, a.given.stride, width, 0, a.added != 0};
  return start_fours(device, kKernel_replace_rows, a.out.rows, width, args);
}

int32_t launch(ts_context& device, const ts_join_rows_args& a) {
  const int64_t width = width_of(a.out), narrow = width_of(a.x);
  if (a.out.rows != a.rows.count || narrow < 1 || width < narrow || width % narrow != 0) return TS_BAD_SHAPE;
  const int32_t* rows = mirrored(device, a.rows.data, a.rows.count);
  if (rows == nullptr) return TS_BAD_POINTER;
  const int64_t groups = a.x.rows / (width / narrow);
  for (int64_t r = 0; r < a.rows.count; ++r)
    if (a.rows.data[r] < 0 || a.rows.data[r] >= groups) return TS_BAD_INDEX;
  const JoinArgs args = {a.out.data, a.x.data, rows, a.out.stride, a.x.stride, narrow, width, 0};
  return start_fours(device, kKernel_join_rows, a.out.rows, width, args);
}

}  // namespace cuda
}  // namespace twostroke
