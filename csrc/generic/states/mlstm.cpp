// mlstm: the scan of xLSTM's matrix memory. A task is one head of one sequence, for all tokens of the step. Sums go over the rows of the
// matrix in order, so bits do not depend on how a sequence is cut into steps.
#include <math.h>

#include "twostroke/rows/activation.h"
#include "twostroke/states/states.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

float first_of(Vec value) {
  float lanes[kLanes];
  store(lanes, value);
  return lanes[0];
}

float exp_of(float x) { return first_of(exp(set1(x))); }

// The state and the shape of one head.
struct Memory {
  float *matrix, *sums, *most;
  int64_t rows, width;
  float scale, eps;
};

// The decay of the memory, and the weight of the token.
struct Gates {
  float kept, added;
};

// Updates columns of the matrix, from `first` on, with one token, and computes what the token reads from them.
void read_columns(const Memory& of, const Gates& gates, const float* q, const float* k, const float* v, float* out, int64_t first, int64_t part,
                  float below) {
  const Vec value = load_part(v + first, part, 0.0f), kept = set1(gates.kept);
  Vec sum = zero();
  for (int64_t d = 0; d < of.rows; ++d) {
    float* at = of.matrix + d * of.width + first;
    const Vec now = fma(kept, load_part(at, part, 0.0f), set1(gates.added * k[d]) * value);
    store_part(at, part, now);
    sum = fma(set1(q[d] * of.scale), now, sum);
  }
  store_part(out + first, part, sum / set1(below));
}

void step(const Memory& of, const float* q, const float* k, const float* v, float input, float forget, float* out) {
  const float left = 0.0f - first_of(softplus(set1(0.0f - forget))) + *of.most, most = left > input ? left : input;
  const Gates gates = {exp_of(left - most), exp_of(input - most)};
  float seen = 0.0f;
  for (int64_t d = 0; d < of.rows; ++d) {
    of.sums[d] = fmaf(gates.kept, of.sums[d], gates.added * k[d]);
    seen = fmaf(q[d] * of.scale, of.sums[d], seen);
  }
  *of.most = most;
  const float length = seen > 0.0f - seen ? seen : 0.0f - seen, least = exp_of(0.0f - most);
  const float below = (length > least ? length : least) + of.eps;
  for (int64_t first = 0; first < of.width; first += kLanes)
    read_columns(of, gates, q, k, v, out, first, of.width - first < kLanes ? of.width - first : kLanes, below);
}

void scan_task(const ts_mlstm_args& a, int64_t index) {
  const int64_t heads = a.q.heads, head = index % heads, rows = a.q.dim, width = a.v.dim;
  const Span span = span_of(a.state, a.slots, a.batch, index / heads);
  float* sums = span.state + heads * rows * width;
  const Memory of = {span.state + head * rows * width, sums + head * rows, sums + heads * rows + head, rows, width,
                     1.0f / sqrtf(static_cast<float>(rows)), static_cast<float>(a.eps)};
  for (int64_t row = span.first; row < span.first + span.count; ++row) {
    const auto of_row = [row, head](const ts_value& value) { return value.data + row * value.stride + head * value.dim; };
    step(of, of_row(a.q), of_row(a.k), of_row(a.v), a.input_gate.data[row * a.input_gate.stride + head],
         a.forget_gate.data[row * a.forget_gate.stride + head], of_row(a.out));
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_mlstm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<scan_task>(context, a.batch.count * a.q.heads, a);
  return TS_OK;
}

}  // namespace twostroke
