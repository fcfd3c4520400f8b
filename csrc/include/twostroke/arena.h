// Divides one block of memory into parts, one after the other.
#pragma once
#include <stdint.h>

#include "twostroke/products/unrolled.h"

namespace twostroke {

// Without memory (scratch is NULL) the parts are only counted. Each begins at a multiple of 64 bytes.
struct Arena {
  uint8_t* scratch;
  int64_t used;

  uint8_t* at() const { return scratch == nullptr ? nullptr : scratch + used; }
  template <class T>
  T* take(int64_t count) {
    T* found = reinterpret_cast<T*>(at());
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return found;
  }
};

}  // namespace twostroke
