// How tiles of pages lie in the shared memory of a block of a prompt's attention. The host says it, so that kernels keep it in no register.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

constexpr int kPromptColumns = 16;   // of a warp: pairs of a row and a query head
constexpr int kPromptDims = 128;     // of V that a block has
constexpr int kPromptThreads = 128;
constexpr int32_t kPromptRoom = 2752;  // times 16 bytes; with what else a block has, 48 KB

// In units of 16 bytes: first the queries, then `stages` tiles of four pages, each K, four rows of V (of four positions each), scales.
struct StageShape {
  int32_t steps;      // of 32 dimensions of K
  int32_t key_rows;   // of 64 bytes
  int32_t value_row, row_bytes;  // of the block's dimensions; bytes from one row to the next in a page
  int32_t values, scales, page;  // where they begin in a page, and what it takes
  int32_t tiles, stages;         // stages 0: there is no room
  int32_t units;                 // of 16 dimensions of V
  int32_t swap;                  // how many of 16 bytes change places from one row of V to the next
  int32_t key_bytes, scale_offset;  // in a page in memory
  int64_t head_bytes;
};

}  // namespace cuda
}  // namespace twostroke
