// The form of the rows of a piece. They are floats, or they are rounded: the largest magnitude of each group of columns, then a code of 8
// bits for each column.
#include <string.h>

#include "twostroke/exchange.h"
#include "twostroke/products/linear.h"

namespace twostroke {
namespace {

int64_t groups_of(int64_t width, int64_t group) { return (width + group - 1) / group; }

void round_row(const float* x, int64_t width, int64_t group, char* to) {
  int8_t* codes = reinterpret_cast<int8_t*>(to + 4 * groups_of(width, group));
  for (int64_t at = 0; at < width; at += group, to += 4) {
    const float amax = round_group(x + at, width - at < group ? width - at : group, codes + at);
    memcpy(to, &amax, 4);
  }
}

void unround_row(const char* from, int64_t width, int64_t group, float* x) {
  const int8_t* codes = reinterpret_cast<const int8_t*>(from + 4 * groups_of(width, group));
  for (int64_t at = 0; at < width; at += group, from += 4) {
    float amax;
    memcpy(&amax, from, 4);
    unround_group(codes + at, amax, width - at < group ? width - at : group, x + at);
  }
}

}  // namespace

int64_t row_bytes(int64_t width, int64_t group) { return group == 0 ? 4 * width : 4 * groups_of(width, group) + round_up(width, 4); }

bool is_form(int64_t width, int64_t group) { return width >= 1 && group >= 0 && group <= kMaxGroup && group % kFineColumns == 0; }

int64_t rounded_group(const ts_weight* reader, int64_t first, int64_t width) {
  if (reader == nullptr || reader->group == 0 || reader->rotated != 0 || first < 0 || first + width > reader->columns) return 0;
  const int64_t group = activation_columns(*reader);
  const bool whole = width % group == 0 || first + width == reader->columns;
  return first % group == 0 && whole ? group : 0;
}

void pack_rows(const ts_value& from, int64_t group, int64_t first, int64_t count, char* to) {
  const int64_t width = width_of(from), bytes = row_bytes(width, group);
  for (int64_t r = first; r < first + count; ++r, to += bytes) {
    const float* row = from.data + r * from.stride;
    if (group == 0) memcpy(to, row, static_cast<size_t>(bytes));
    else round_row(row, width, group, to);
  }
}

void unpack_rows(const char* from, int64_t width, int64_t group, const ts_value& to, int64_t first, int64_t count, int64_t column) {
  const int64_t bytes = row_bytes(width, group);
  for (int64_t r = first; r < first + count; ++r, from += bytes) {
    float* row = to.data + r * to.stride + column;
    if (group == 0) memcpy(row, from, static_cast<size_t>(bytes));
    else unround_row(from, width, group, row);
  }
}

void copy_rows(const ts_value& from, const ts_value& to, int64_t first, int64_t count, int64_t column) {
  const size_t bytes = 4 * static_cast<size_t>(width_of(from));
  for (int64_t r = first; r < first + count; ++r) memcpy(to.data + r * to.stride + column, from.data + r * from.stride, bytes);
}

}  // namespace twostroke
