// The layout of stored weights, as their kernels get it.
#pragma once
#include <stdint.h>

#include "twostroke/products/packed.h"

namespace twostroke {
namespace cuda {

// The facts that a kernel needs about one group of a stored kind. The host computes them, so that kernels read no table of kinds.
struct StoredLayout {
  int64_t group_bytes;  // bytes of a whole group
  int32_t sub, offset;  // sub: the columns of a step; offset: the excess of a code as kernels unpack it
  int32_t nibbles, super, minimum, floats, table, high, alone, third, fine;
};

constexpr StoredLayout stored_layout(int32_t kind) {
  if (!is_stored_kind(kind)) return {};
  const StoredShape shape = stored_shape(kind);
  const int64_t offset = shape.table == kE2M1 ? 128 : shape.offset;  // the kernels unpack E2M1 to its code + 128
  return {stored_panel_bytes(shape, kStoredGroup), static_cast<int32_t>(shape.sub), static_cast<int32_t>(offset), shape.nibbles, shape.super,
          shape.minimum, shape.floats, shape.table, static_cast<int32_t>(shape.high), shape.alone, shape.third, shape.fine};
}

}  // namespace cuda
}  // namespace twostroke
