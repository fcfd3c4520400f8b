// Ops whose result has one element for each element that they read.
#pragma once
#include "twostroke/simd.h"

namespace twostroke {

// Computes out[i] = function(from[i]...), sixteen at a time. Lanes after the last element are zeros. out may be an input, because each
// vector is read before it is written.
template <class Function, class... From>
TS_VECTOR_INLINE void each_vector(float* out, int64_t width, const Function& function, const From*... from) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, function(load(from + i)...));
  if (i < width) store_part(out + i, width - i, function(load_part(from + i, width - i, 0.0f)...));
}

}  // namespace twostroke
