// The layout of stored weights, as their kernels get it.
#pragma once
#include <stdint.h>

#include "twostroke/packed.h"

namespace twostroke {
namespace cuda {

// What a kernel must know of one group of a stored kind; made by the host, so that kernels ask no table of kinds.
struct StoredLayout {
  int64_t group_bytes;     // of a whole group
  int32_t sub, offset;     // columns of a step; what a code as kernels unpack it is too much
  int32_t nibbles, super, minimum, floats, table, high, alone, third, fine;
};

constexpr StoredLayout stored_layout(int32_t kind) {
  if (!is_stored_kind(kind)) return {};
  const StoredShape shape = stored_shape(kind);
  const int64_t offset = shape.table == kE2M1 ? 128 : shape.offset;  // E2M1 is unpacked to its code + 128
  return {stored_panel_bytes(shape, kStoredGroup), static_cast<int32_t>(shape.sub), static_cast<int32_t>(offset), shape.nibbles, shape.super,
          shape.minimum, shape.floats, shape.table, static_cast<int32_t>(shape.high), shape.alone, shape.third, shape.fine};
}

}  // namespace cuda
}  // namespace twostroke
