// chosen_linear: gathers the rows that chose a matrix, multiplies them like the rows of any product, and puts the results back.
#include <string.h>

#include "twostroke/checks.h"
#include "twostroke/context.h"
#include "twostroke/products/linear.h"

namespace twostroke {
namespace {

const float* numbers_of(const ts_chosen_linear_args& a, int64_t row) { return a.routes.data + row * a.routes.stride + a.out.heads; }

bool are_matrices(const ts_chosen_linear_args& a, int64_t row) {
  for (int64_t choice = 0; choice < a.out.heads; ++choice) {
    const float number = numbers_of(a, row)[choice];
    if (!(number >= 0 && number < static_cast<float>(a.weight->experts))) return false;
    if (static_cast<float>(static_cast<int64_t>(number)) != number) return false;
  }
  return true;
}

// Moves the rows whose choice at this place is the matrix. Their inputs go to a.rows, or their results come from a.made.
template <class Move>
int64_t each_of(const ts_chosen_linear_args& a, int64_t matrix, int64_t choice, const Move& move) {
  int64_t count = 0;
  for (int64_t row = 0; row < a.x.rows; ++row)
    if (numbers_of(a, row)[choice] == static_cast<float>(matrix)) move(row, count++);
  return count;
}

int32_t multiply(ts_context* context, const ts_chosen_linear_args& a, int64_t matrix, int64_t choice) {
  const ts_weight weight = matrix_of(*a.weight, matrix);
  const int64_t columns = weight.columns, place = a.x.heads > 1 ? choice * columns : 0;
  const int64_t count = each_of(a, matrix, choice, [&](int64_t row, int64_t at) {
    memcpy(a.rows.data + at * a.rows.stride, a.x.data + row * a.x.stride + place, static_cast<size_t>(columns) * 4);
  });
  if (count == 0) return TS_OK;
  const int32_t status = ts_linear(context, &weight, a.rows.data, a.rows.stride, count, a.made.data, a.made.stride);
  if (status != TS_OK) return status;
  each_of(a, matrix, choice, [&](int64_t row, int64_t at) {
    memcpy(a.out.data + row * a.out.stride + choice * weight.rows, a.made.data + at * a.made.stride, static_cast<size_t>(weight.rows) * 4);
  });
  return TS_OK;
}

}  // namespace

int32_t run(ts_context* context, const ts_chosen_linear_args& a) {
  int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (a.rows.rows != a.x.rows || a.made.rows != a.x.rows) return TS_BAD_SHAPE;
  if (width_of(a.rows) != a.weight->columns || width_of(a.made) != a.weight->rows) return TS_BAD_SHAPE;
  for (int64_t row = 0; row < a.x.rows; ++row)
    if (!are_matrices(a, row)) return TS_BAD_INDEX;
  for (int64_t matrix = 0; matrix < a.weight->experts; ++matrix)
    for (int64_t choice = 0; choice < a.out.heads && status == TS_OK; ++choice) status = multiply(context, a, matrix, choice);
  return status;
}

}  // namespace twostroke
