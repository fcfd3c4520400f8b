// How tiles of pages lie in the shared memory of a block in a prompt's attention. The host computes it, so that kernels need no registers
// for it.
#pragma once
#include <stdint.h>

namespace twostroke {
namespace cuda {

constexpr int kPromptColumns = 16;  // columns of a warp: pairs of a row and a query head
constexpr int kPromptDims = 128;  // dimensions of V that a block has
constexpr int kPromptThreads = 128;
constexpr int32_t kPromptRoom = 2752;  // the room, in units of 16 bytes; with the block's other arrays this is 48 KB

// The layout, in units of 16 bytes. The queries come first, then `stages` tiles of four pages. A page has K, four rows of V (each of four
// positions) and scales.
struct StageShape {
  int32_t steps;  // steps of 32 dimensions of K
  int32_t key_rows;  // rows of 64 bytes
  int32_t value_row, row_bytes;  // value_row: the units of the block's dimensions; row_bytes: the bytes from one row of a page to the next
  int32_t values, scales, page;  // values, scales: the places of V and of the scales in a page; page: the size of a page
  int32_t tiles, stages;  // stages is 0 where the tiles do not fit
  int32_t units;  // units of 16 dimensions of V
  int32_t swap;  // how many units of 16 bytes change places from one row of V to the next
  int32_t key_bytes, scale_offset;  // the places in a page in memory
  int64_t head_bytes;
};

}  // namespace cuda
}  // namespace twostroke
