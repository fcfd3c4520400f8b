// ts_silu_mul, ts_add, ts_gather_rows: one element or row at a time.
// Knows: simd.h, the pool. Must not know: models.
#include "twostroke/context.h"
#include "twostroke/simd.h"

namespace twostroke {
namespace {

constexpr int64_t kElementsPerTask = 8192;

int64_t tasks_for(int64_t elements) { return (elements + kElementsPerTask - 1) / kElementsPerTask; }

Vec silu(Vec gate) { return gate / (set1(1.0f) + exp(zero() - gate)); }

struct SiluJob {
  const float* gate_up;
  int64_t gate_up_stride, tokens, columns;
  float* out;
  int64_t out_stride;
  int64_t rows_per_task;
};

void silu_row(const float* gate, const float* up, int64_t columns, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) store(out + i, silu(load(gate + i)) * load(up + i));
  if (i < columns) {
    const int64_t rest = columns - i;
    store_part(out + i, rest, silu(load_part(gate + i, rest, 0.0f)) * load_part(up + i, rest, 0.0f));
  }
}

void silu_task(void* opaque, int64_t index, int32_t) {
  const SiluJob* job = static_cast<const SiluJob*>(opaque);
  const int64_t first = index * job->rows_per_task;
  const int64_t last = first + job->rows_per_task < job->tokens ? first + job->rows_per_task : job->tokens;
  for (int64_t t = first; t < last; ++t) {
    const float* gate = job->gate_up + t * job->gate_up_stride;
    silu_row(gate, gate + job->columns, job->columns, job->out + t * job->out_stride);
  }
}

struct AddJob {
  float* x;
  const float* y;
  int64_t elements;
};

void add_task(void* opaque, int64_t index, int32_t) {
  const AddJob* job = static_cast<const AddJob*>(opaque);
  const int64_t first = index * kElementsPerTask;
  const int64_t last = first + kElementsPerTask < job->elements ? first + kElementsPerTask : job->elements;
  int64_t i = first;
  for (; i + kLanes <= last; i += kLanes) store(job->x + i, load(job->x + i) + load(job->y + i));
  for (; i < last; ++i) job->x[i] += job->y[i];
}

}  // namespace
}  // namespace twostroke

int32_t ts_silu_mul(ts_context* context, const float* gate_up, int64_t gate_up_stride, int64_t tokens, int64_t columns, float* out,
                    int64_t out_stride) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (tokens < 0 || columns < 1 || gate_up_stride < 2 * columns || out_stride < columns) return TS_BAD_SHAPE;
  if (tokens == 0) return TS_OK;
  if (gate_up == nullptr || out == nullptr) return TS_BAD_POINTER;
  const int64_t rows = twostroke::kElementsPerTask / columns > 0 ? twostroke::kElementsPerTask / columns : 1;
  twostroke::SiluJob job = {gate_up, gate_up_stride, tokens, columns, out, out_stride, rows};
  ts_parallel(context, (tokens + rows - 1) / rows, twostroke::silu_task, &job);
  return TS_OK;
}

int32_t ts_add(ts_context* context, float* x, const float* y, int64_t elements) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (elements < 0) return TS_BAD_SHAPE;
  if (elements == 0) return TS_OK;
  if (x == nullptr || y == nullptr) return TS_BAD_POINTER;
  twostroke::AddJob job = {x, y, elements};
  ts_parallel(context, twostroke::tasks_for(elements), twostroke::add_task, &job);
  return TS_OK;
}

int32_t ts_gather_rows(ts_context* context, const float* x, int64_t x_stride, int64_t x_rows, const int32_t* rows, int64_t count,
                       int64_t columns, float* out, int64_t out_stride) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (count < 0 || columns < 1 || x_rows < 0 || x_stride < columns || out_stride < columns) return TS_BAD_SHAPE;
  if (count == 0) return TS_OK;
  if (x == nullptr || rows == nullptr || out == nullptr) return TS_BAD_POINTER;
  for (int64_t r = 0; r < count; ++r)
    if (rows[r] < 0 || rows[r] >= x_rows) return TS_BAD_INDEX;
  for (int64_t r = 0; r < count; ++r)
    memcpy(out + r * out_stride, x + rows[r] * x_stride, sizeof(float) * static_cast<size_t>(columns));
  return TS_OK;
}
