// Stored codes in 512-bit registers.
#pragma once
#include "twostroke/stored_head.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {

template <int32_t kKind>
using Head = StoredHead<kKind, Columns512>;

}  // namespace twostroke
