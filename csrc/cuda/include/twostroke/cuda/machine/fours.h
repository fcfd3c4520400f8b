// Four consecutive elements of a row, as a thread has them in kernels that compute element by element. They need one load where they lie at
// a multiple of 16 bytes, and one division to find the row.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

// The place of four elements: they begin at `at` in `row`, and the first `count` of them are in the row.
struct FourPlace {
  int64_t row;
  int32_t at, count;
};

// Returns the place of this thread in rows of `width` elements.
TS_DEVICE_INLINE FourPlace four_place(int64_t width) {
  const uint32_t parts = static_cast<uint32_t>(four_parts(width)), block = static_cast<uint32_t>(block_index()), row = block / parts;
  const int32_t part = static_cast<int32_t>(block - row * parts);
  const int32_t at = (part * threads() + thread_index()) * 4, left = static_cast<int32_t>(width) - at;
  return {row, at, left < 0 ? 0 : left < 4 ? left : 4};
}

#define TS_EACH_OF_FOUR \
  TS_EVERY_LANE         \
  for (int32_t i = 0; i < 4; ++i)

struct Four {
  float v[4];
};

TS_DEVICE_INLINE bool at_16_bytes(const void* address) { return (reinterpret_cast<uint64_t>(address) & 15) == 0; }

// Loads four elements, with zeros after the first `count`.
TS_DEVICE_INLINE Four load_four(const float* from, int32_t count) {
  Four found;
  if (count == 4 && at_16_bytes(from)) {
    const Words4 words = load16(from);
    TS_EACH_OF_FOUR found.v[i] = float_of(words[i]);
  } else {
    TS_EACH_OF_FOUR found.v[i] = i < count ? from[i] : 0.0f;
  }
  return found;
}

TS_DEVICE_INLINE void store_four(float* to, const Four& four, int32_t count) {
  if (count == 4 && at_16_bytes(to)) {
    Words4 words;
    TS_EACH_OF_FOUR words[i] = bits_of(four.v[i]);
    *reinterpret_cast<Words4*>(to) = words;
  } else {
    TS_EACH_OF_FOUR if (i < count) to[i] = four.v[i];
  }
}

// Applies one activation to all four, so that the code branches once.
TS_DEVICE_INLINE void activate_four(int64_t activation, Four& x) {
  switch (activation) {
#define ACTIVATE(number)                                  \
  case number:                                            \
    TS_EACH_OF_FOUR x.v[i] = activated(number, x.v[i]);   \
    return;
    ACTIVATE(0)
    ACTIVATE(1)
    ACTIVATE(2)
    ACTIVATE(3)
    ACTIVATE(4)
    ACTIVATE(5)
    ACTIVATE(7)
    ACTIVATE(8)
    ACTIVATE(9)
#undef ACTIVATE
    default: return;
  }
}

}  // namespace cuda
}  // namespace twostroke
