// rope: rotates pairs (i, i + half) of every head in place.
#include "twostroke/checks.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

void rotate(float* head, const float* cos_row, const float* sin_row, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec low = load(head + i), high = load(head + half + i), c = load(cos_row + i), s = load(sin_row + i);
    store(head + i, low * c - high * s);
    store(head + half + i, high * c + low * s);
  }
  for (; i < half; ++i) {
    const float low = head[i], high = head[half + i];
    head[i] = low * cos_row[i] - high * sin_row[i];
    head[half + i] = high * cos_row[i] + low * sin_row[i];
  }
}

constexpr int64_t kRowsPerTask = 8;

void rope_task(const ts_rope_args& a, int64_t index) {
  const int64_t first = index * kRowsPerTask, last = first + kRowsPerTask < a.out.rows ? first + kRowsPerTask : a.out.rows;
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = a.positions.data[t] * a.table.half;
    for (int64_t h = 0; h < a.out.heads; ++h)
      rotate(a.out.data + t * a.out.stride + h * a.out.dim, a.table.cos_table + at, a.table.sin_table + at, a.table.half);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_rope_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<rope_task>(context, (a.out.rows + kRowsPerTask - 1) / kRowsPerTask, a);
  return TS_OK;
}

}  // namespace twostroke
