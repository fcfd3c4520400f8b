// Reading memory once, front to back, as fast as it comes.
// Measured on weights from memory, 31 GB/s to be had: first-level prefetch 4 KiB ahead 23, second-level 30, both 31; for int4, whose
// lines take longer to use up, 21 without any, 22, 26 and 29. Hardware prefetchers alone stop at each page.
// Knows: prefetching. Must not know: what is read.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kFarBytes = 4096;   // memory to second-level cache
constexpr int64_t kNearBytes = 2048;  // second-level to first-level cache

// For each line that is used, once; addresses beyond the end are harmless.
__attribute__((always_inline)) inline void prefetch_line(const uint8_t* line) {
  __builtin_prefetch(line + kFarBytes, 0, 2);
  __builtin_prefetch(line + kNearBytes, 0, 3);
}

}  // namespace twostroke
