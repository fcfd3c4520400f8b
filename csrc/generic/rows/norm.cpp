// rms_norm and head_norm. The sum of squares is sixteen partial sums and then one fixed tree, so a row's bits depend on that row
// alone.
#include "twostroke/ops.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

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

// Each head of a row is a vector of its own.
struct NormJob {
  ts_value out, x;
  ts_vector weight;
  float eps;
};

constexpr int64_t kRowsPerTask = 8;

void norm_task(const NormJob& job, int64_t index) {
  const int64_t first = index * kRowsPerTask, last = first + kRowsPerTask < job.x.rows ? first + kRowsPerTask : job.x.rows;
  for (int64_t t = first; t < last; ++t)
    for (int64_t at = 0; at < width_of(job.x); at += job.x.dim)
      norm_row(job.x.data + t * job.x.stride + at, job.weight.data, job.eps, job.x.dim, job.out.data + t * job.out.stride + at);
}

int32_t norm(ts_context* context, const NormJob& job) {
  if (job.weight.data == nullptr) return TS_BAD_POINTER;
  if (job.x.heads < 1 || job.x.dim < 1 || job.weight.length != job.x.dim) return TS_BAD_SHAPE;
  share_tasks<norm_task>(context, (job.x.rows + kRowsPerTask - 1) / kRowsPerTask, job);
  return TS_OK;
}

ts_value with_one_head(const ts_value& x) { return {x.data, x.stride, x.rows, 1, width_of(x)}; }

}  // namespace

int32_t run(ts_context* context, const ts_rms_norm_args& a) {
  if (a.out.rows != a.x.rows || width_of(a.out) != width_of(a.x)) return TS_BAD_SHAPE;
  return norm(context, {with_one_head(a.out), with_one_head(a.x), a.weight, static_cast<float>(a.eps)});
}

int32_t run(ts_context* context, const ts_head_norm_args& a) { return norm(context, {a.out, a.out, a.weight, static_cast<float>(a.eps)}); }

}  // namespace twostroke
