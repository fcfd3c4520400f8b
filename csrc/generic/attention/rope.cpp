// ts_rope: rotates pairs (i, i + half) of every head in place.
#include "twostroke/context.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

struct RopeJob {
  float* x;
  int64_t x_stride, tokens, heads, head_dim;
  const float* cos_table;
  const float* sin_table;
  int64_t half;
  const int32_t* positions;
};

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

void rope_task(void* opaque, int64_t index, int32_t) {
  const RopeJob* job = static_cast<const RopeJob*>(opaque);
  const int64_t first = index * kRowsPerTask;
  const int64_t last = first + kRowsPerTask < job->tokens ? first + kRowsPerTask : job->tokens;
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = job->positions[t] * job->half;
    for (int64_t h = 0; h < job->heads; ++h)
      rotate(job->x + t * job->x_stride + h * job->head_dim, job->cos_table + at, job->sin_table + at, job->half);
  }
}

}  // namespace
}  // namespace twostroke

int32_t ts_rope(ts_context* context, float* x, int64_t x_stride, int64_t tokens, int64_t heads, int64_t head_dim,
                const float* cos_table, const float* sin_table, int64_t table_positions, int64_t half_rotary,
                const int32_t* positions) {
  if (context == nullptr || cos_table == nullptr || sin_table == nullptr) return TS_BAD_POINTER;
  if (tokens < 0 || heads < 1 || head_dim < 1 || half_rotary < 0 || 2 * half_rotary > head_dim) return TS_BAD_SHAPE;
  if (x_stride < heads * head_dim) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (x == nullptr || positions == nullptr) return TS_BAD_POINTER;
  for (int64_t t = 0; t < tokens; ++t)
    if (positions[t] < 0 || positions[t] >= table_positions) return TS_BAD_INDEX;
  twostroke::RopeJob job = {x, x_stride, tokens, heads, head_dim, cos_table, sin_table, half_rotary, positions};
  ts_parallel(context, (tokens + twostroke::kRowsPerTask - 1) / twostroke::kRowsPerTask, twostroke::rope_task, &job);
  return TS_OK;
}
