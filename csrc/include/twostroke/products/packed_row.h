// Columns of one row of a packed matrix of an integer kind, as floats.
#pragma once
#include "twostroke/products/packed.h"

namespace twostroke {

// Unpacks `columns` columns from `first` on into `out`. Where the columns are rotated, they stay so. first: a multiple of the columns of a
// group of stored kinds, and of kStep of others. columns: whole steps, and at most one group of stored kinds.
void packed_row(const ts_weight& w, int64_t row, int64_t first, int64_t columns, float* out);

// Fetches the memory that packed_row reads for these columns. It fetches nothing where `first` lies after the last column.
void fetch_row(const ts_weight& w, int64_t row, int64_t first, int64_t columns);

}  // namespace twostroke
