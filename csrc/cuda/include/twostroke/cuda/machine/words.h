// Constants and types that both machines of simt.h share.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

constexpr int kWarp = 32;  // the threads of a warp
typedef uint32_t Words4 __attribute__((ext_vector_type(4)));  // 16 bytes, the most that one thread loads at once

}  // namespace cuda
}  // namespace twostroke
