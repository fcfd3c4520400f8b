// Four bytes as one number, the form that products of bytes take.
#pragma once
#include "twostroke/lanes.h"

namespace twostroke {

TS_VECTOR_INLINE int32_t quad_of(const int8_t* factors) {
  int32_t quad;
  memcpy(&quad, factors, 4);
  return quad;
}

}  // namespace twostroke
