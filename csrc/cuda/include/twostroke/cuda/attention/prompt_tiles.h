// Tiles of int8 and int4 pages in shared memory, for the warps of a block that go over the same positions. Where there is room for two
// tiles, the next one is copied while one is computed. Units of 16 bytes change places, so that the threads of a warp read from all banks
// at once.
#pragma once
#include "twostroke/cuda/attention/whole.h"

namespace twostroke {
namespace cuda {

constexpr int kPromptWarps = kPromptThreads / kWarp;
static_assert(kPromptWarps == kTilePages, "a warp copies a page");

// The queries of each warp as operand A of each thread, in blocks of 32 dimensions; then one or two tiles.
TS_SHARED(Words4, prompt_room, kPromptRoom);

// The place of 16 bytes of K: quarter `quarter` of row `row`, which has 64 bytes.
TS_DEVICE_INLINE int32_t swapped_key(int32_t row, int32_t quarter) { return row * 4 + (quarter ^ (row / 2 % 2 * 2)); }

// The tiles of a block: the positions from `first` to `end`.
template <class Pages>
struct TileCopies {
  const AttentionArgs& args;
  const RowTile& rows;
  int32_t kv_head, first_byte, begin, first, end, stage, next;  // stage: the place of the current tile; next: the place of the next one

  TS_MEMBER_INLINE TileCopies(const AttentionArgs& args_, const RowTile& rows_, int32_t kv_head_, int32_t first_dim)
      : args(args_), rows(rows_), kv_head(kv_head_), first_byte(4 * Pages::words_before(first_dim)), begin(rows_.begin(args_)), first(begin / kTile * kTile), end(rows_.end(args_)),
        stage(args_.stage.tiles), next(args_.stage.tiles + (args_.stage.stages - 1) * kTilePages * args_.stage.page) {
    copy(first, stage);
    commit_copies();
  }
  // Begins to copy a tile. All threads of the block call it; a warp copies a page.
  TS_MEMBER_INLINE void copy(int32_t start, int32_t to_stage) const {
    const StageShape& shape = args.stage;
    const int32_t page = warp_index(), lane = warp_lane(), to = to_stage + page * shape.page;
    const int64_t id = rows.page(start / TS_PAGE_TOKENS + page, begin, end);
    const uint8_t* keys = static_cast<const uint8_t*>(args.layer.data) + (id * args.layer.kv_heads + kv_head) * shape.head_bytes;
    for (int32_t i = lane; i < shape.values; i += kWarp) copy_async(prompt_room, to + swapped_key(i / 4, i % 4), keys + 16 * i, true);
    for (int32_t row = 0; row < 4; ++row) {
      const uint8_t* values = keys + shape.key_bytes + row * shape.row_bytes + first_byte;
      const int32_t at = to + shape.values + row * shape.value_row;
      for (int32_t i = lane; i < shape.value_row; i += kWarp) copy_async(prompt_room, at + (i ^ (row * shape.swap)), values + 16 * i, true);
    }
    if (lane < 4) copy_async(prompt_room, to + shape.scales + lane, keys + shape.scale_offset + 16 * lane, true);
  }
  // Waits for the current tile and begins to copy the next one where there is room.
  TS_MEMBER_INLINE void wait(int32_t start) const {
    if (args.stage.stages > 1) {
      if (start + kTile < end) copy(start + kTile, next);
      commit_copies();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    barrier();
  }
  // All threads call it after they have read the tile.
  TS_MEMBER_INLINE void leave(int32_t start) {
    barrier();
    if (args.stage.stages == 1 && start + kTile < end) {
      copy(start + kTile, next);
      commit_copies();
    }
    const int32_t other = next;
    next = stage;
    stage = other;
  }
};

}  // namespace cuda
}  // namespace twostroke
