// place_scores: multiplies each head's vector by a vector of every place. A task is one head of a few rows, so that a head's table stays in
// a first- or second-level cache. Each sum is one chain of products over the dimensions, in order.
#include "twostroke/checks.h"
#include "twostroke/ops.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

// kRows, kVectors: the rows and the vectors of places whose sums are in registers
constexpr int64_t kRows = 4, kTaskRows = 32, kVectors = 4;

// Computes places [b, b + 16 kVectors) of `rows` rows.
template <int kCount>
void score_part(const ts_place_scores_args& a, int64_t row, int64_t rows, int64_t head, int64_t b) {
  const int64_t dim = a.x.dim, places = a.out.dim;
  const float* table = a.table.data + head * dim * places + b;
  const float* x[kRows];
  Vec sums[kRows][kCount];
  for (int64_t r = 0; r < kRows; ++r) {
    x[r] = a.x.data + (row + (r < rows ? r : 0)) * a.x.stride + head * dim;
    for (int64_t v = 0; v < kCount; ++v) sums[r][v] = zero();
  }
  for (int64_t d = 0; d < dim; ++d)
    for (int64_t v = 0; v < kCount; ++v) {
      const Vec at = load(table + d * places + v * kLanes);
      for (int64_t r = 0; r < kRows; ++r) sums[r][v] = fma(set1(x[r][d]), at, sums[r][v]);
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < kCount; ++v) store(a.out.data + (row + r) * a.out.stride + head * places + b + v * kLanes, sums[r][v]);
}

// Computes the last places of a row, which are fewer than a vector has.
void score_last(const ts_place_scores_args& a, int64_t row, int64_t head, int64_t b) {
  const int64_t dim = a.x.dim, places = a.out.dim, count = places - b;
  if (count == 0) return;
  const float* x = a.x.data + row * a.x.stride + head * dim;
  const float* table = a.table.data + head * dim * places + b;
  Vec sum = zero();
  for (int64_t d = 0; d < dim; ++d) sum = fma(set1(x[d]), load_part(table + d * places, count, 0.0f), sum);
  store_part(a.out.data + row * a.out.stride + head * places + b, count, sum);
}

void score_rows(const ts_place_scores_args& a, int64_t index) {
  const int64_t head = index % a.x.heads, first = index / a.x.heads * kTaskRows, places = a.out.dim;
  const int64_t end = first + kTaskRows < a.x.rows ? first + kTaskRows : a.x.rows;
  for (int64_t row = first; row < end; row += kRows) {
    const int64_t rows = end - row < kRows ? end - row : kRows;
    int64_t b = 0;
    for (; b + kVectors * kLanes <= places; b += kVectors * kLanes) score_part<kVectors>(a, row, rows, head, b);
    for (; b + kLanes <= places; b += kLanes) score_part<1>(a, row, rows, head, b);
    for (int64_t r = 0; r < rows; ++r) score_last(a, row + r, head, b);
  }
}

}  // namespace

int32_t run(ts_context* context, const ts_place_scores_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  share_tasks<score_rows>(context, (a.x.rows + kTaskRows - 1) / kTaskRows * a.x.heads, a);
  return TS_OK;
}

}  // namespace twostroke
