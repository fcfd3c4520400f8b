// ts_rms_norm and ts_head_norm. The sum of squares is sixteen partial sums and then one fixed tree, so a row's bits depend on that row
// alone.
#include "twostroke/context.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

// in and out may be the same row.
void norm_row(const float* in, const float* weight, float eps, int64_t columns, float* out) {
  Vec squares = zero();
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const Vec x = load(in + i);
    squares = fma(x, x, squares);
  }
  if (i < columns) {
    const Vec x = load_part(in + i, columns - i, 0.0f);
    squares = fma(x, x, squares);
  }
  const Vec scale = set1(1.0f / sqrtf(reduce_add(squares) / static_cast<float>(columns) + eps));
  for (i = 0; i + kLanes <= columns; i += kLanes) store(out + i, load(in + i) * scale * load(weight + i));
  if (i < columns) {
    const int64_t rest = columns - i;
    store_part(out + i, rest, load_part(in + i, rest, 0.0f) * scale * load_part(weight + i, rest, 0.0f));
  }
}

struct NormJob {
  const float* x;
  int64_t x_stride;
  const float* weight;
  float eps;
  int64_t tokens, parts, columns;  // parts: the vectors of a row, one after another
  float* out;
  int64_t out_stride;
};

constexpr int64_t kRowsPerTask = 8;

void norm_task(void* opaque, int64_t index, int32_t) {
  const NormJob* job = static_cast<const NormJob*>(opaque);
  const int64_t first = index * kRowsPerTask;
  const int64_t last = first + kRowsPerTask < job->tokens ? first + kRowsPerTask : job->tokens;
  for (int64_t t = first; t < last; ++t)
    for (int64_t p = 0; p < job->parts; ++p)
      norm_row(job->x + t * job->x_stride + p * job->columns, job->weight, job->eps, job->columns,
               job->out + t * job->out_stride + p * job->columns);
}

int32_t run(ts_context* context, NormJob job) {
  if (context == nullptr || job.weight == nullptr) return TS_BAD_POINTER;
  if (job.tokens < 0 || job.parts < 1 || job.columns < 1) return TS_BAD_SHAPE;
  if (job.x_stride < job.parts * job.columns || job.out_stride < job.parts * job.columns) return TS_BAD_SHAPE;
  if (job.tokens == 0) return TS_OK;
  if (job.x == nullptr || job.out == nullptr) return TS_BAD_POINTER;
  ts_parallel(context, (job.tokens + kRowsPerTask - 1) / kRowsPerTask, norm_task, &job);
  return TS_OK;
}

}  // namespace
}  // namespace twostroke

int32_t ts_rms_norm(ts_context* context, const float* x, int64_t x_stride, const float* weight, float eps, int64_t tokens,
                    int64_t columns, float* out, int64_t out_stride) {
  return twostroke::run(context, {x, x_stride, weight, eps, tokens, 1, columns, out, out_stride});
}

int32_t ts_head_norm(ts_context* context, float* x, int64_t x_stride, const float* weight, float eps, int64_t tokens,
                     int64_t heads, int64_t head_dim) {
  return twostroke::run(context, {x, x_stride, weight, eps, tokens, heads, head_dim, x, x_stride});
}
