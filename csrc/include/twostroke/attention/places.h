// What scores have next to the products, by the place of a row and a position (placed_attention).
#pragma once
#include <stdint.h>

namespace twostroke {

struct Places {
  const float* place_of;  // of distances -reach .. reach; NULL where nothing is added to scores
  const float *table, *by_row, *by_key;  // (heads, count); (rows, heads, count), rows `stride` apart; each may be NULL
  int64_t reach, count, row_stride, key_stride;
};

}  // namespace twostroke
