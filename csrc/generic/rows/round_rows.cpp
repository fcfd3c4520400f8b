// round_rows: rounds each row to whole numbers of 8 bits, and turns them back into floats.
#include <math.h>

#include "twostroke/checks.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void round_row(const ts_round_rows_args& a, int64_t row) {
  float* out = a.out.data + row * a.out.stride;
  const float* x = a.x.data + row * a.x.stride;
  const int64_t width = width_of(a.out);
  float most = 1e-5f;
  bool known = true;
  for (int64_t i = 0; i < width; ++i) {
    const float size = fabsf(x[i]);
    known &= size == size;
    most = size > most ? size : most;
  }
  const float steps = known ? 127.0f / most : NAN;
  for (int64_t i = 0; i < width; ++i) {
    const float whole = rintf(x[i] * steps);
    out[i] = (whole > 127.0f ? 127.0f : whole < -128.0f ? -128.0f : whole) / steps;
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_round_rows_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<round_row>(context, a.out.rows, a);
  return TS_OK;
}

}  // namespace twostroke
