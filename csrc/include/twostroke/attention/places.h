// Numbers that are added to scores, by the place of a row and a position (placed_attention).
#pragma once
#include <stdint.h>

namespace twostroke {

struct Places {
  const float* place_of;  // the places of the distances -reach .. reach; NULL where nothing is added to scores
  // table (heads, count); by_row and by_key (rows, heads, count), rows `stride` apart; each may be NULL
  const float *table, *by_row, *by_key;
  int64_t reach, count, row_stride, key_stride;
};

}  // namespace twostroke
