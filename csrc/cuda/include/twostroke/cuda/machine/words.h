// What both machines of simt.h have in common.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

constexpr int kWarp = 32;                                     // threads
typedef uint32_t Words4 __attribute__((ext_vector_type(4)));  // 16 bytes: what one thread loads at most at once

}  // namespace cuda
}  // namespace twostroke
