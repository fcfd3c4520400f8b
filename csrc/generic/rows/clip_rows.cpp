// clip_rows: out = min(max(x, bounds[0]), bounds[1]).
#include "twostroke/ops.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void clip_row(const ts_clip_rows_args& a, int64_t row) {
  float* out = a.out.data + row * a.out.stride;
  const float* x = a.x.data + row * a.x.stride;
  const float least = a.bounds.data[0], most = a.bounds.data[1];
  const int64_t width = width_of(a.out);
  for (int64_t i = 0; i < width; ++i) {  // comparisons with NaN are false: it stays
    const float above = x[i] < least ? least : x[i];
    out[i] = above > most ? most : above;
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_clip_rows_args& a) {
  if (a.bounds.length != 2 || a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  share_tasks<clip_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
