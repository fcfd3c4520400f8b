// Arguments of the kernels that multiply tiles of many rows of activations by panels of weights; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/products/packed.h"

namespace twostroke {
namespace cuda {

constexpr int kTileTokens = 128;          // rows of x that a block of linear_tile has, by one panel; scratch memory holds whole tiles
constexpr int kTileThreads = 256;
constexpr int kNarrowTokens = 64;         // the same of linear_narrow
constexpr int kNarrowTileThreads = 256;
constexpr int kStepTokens = 32;           // the same of linear_steps, for stored kinds
constexpr int kFewStepTokens = 16;        // where there are no more
constexpr int kStepStrip = 32;            // rows of a matrix that it has
constexpr int kStepThreads = 256;
constexpr int kPlaceThreads = 256;         // of place_pairs
constexpr int kTileRoundWarps = 8;         // of a block of quantize_tiles; each rounds one group of one row
constexpr int kTileRoundThreads = 32 * kTileRoundWarps;

// What becomes of a group's int32 sum: bits + correction is the float 1.5 * 2^23 + sum where |sum| <= 2^22, else the sum itself.
struct TilePair {
  float scale;
  int32_t correction;
};

// Rows (rows, columns) to int8 q (padded / 64, room, 64) and pairs (groups, room).
struct RoundArgs {
  const float* x;
  int8_t* q;
  TilePair* pairs;
  int64_t x_stride, rows, room, columns, padded, group, groups;
  int32_t added;  // to corrections
  // These of quantize_steps. scales (groups, room); of fine kinds (padded / 32, room). pairs are (padded / sub, room) and have the sums of
  // steps as their scales; of fine kinds those sums times the scale, or where nothing is taken off the scale alone.
  float* scales;
  int32_t sub, offset, fine, minimum;
  // For experts: the pair of each row of q, less than 0 for none; of its row of x each has `chosen`, 0 where x has rows as q. NULL for none.
  const int32_t* order;
  const float* weights;  // of pairs, that x is multiplied by; NULL for none
  int64_t chosen;
  int64_t rotated;  // as ts_weight
};

struct TileArgs {  // out = or += x @ W.T + bias
  float* out;
  const uint8_t* data;
  const uint16_t* scales;
  const float* bias;
  const int8_t* q;
  const TilePair* pairs;
  int64_t out_stride, tokens, room, rows, panel_bytes;
  int32_t group, groups, steps, panels, tiles;  // steps: of 64 columns; tiles: of tokens
  int32_t add, small;                           // small: sums are within 2^22
  StoredLayout stored;                          // these four of linear_steps
  const float* x_scales;
  int32_t blocks, wide;  // blocks: that share all tiles; wide: a block has kStepTokens, not kFewStepTokens
  const int32_t *matrices, *order;  // of a bank: which one each tile of kNarrowTokens meets, which pair each place has; NULL for one matrix
};

// Pairs of a row and an expert in the order of experts, each of which begins with a tile of kNarrowTokens places. order: the pair of each
// place, less than 0 for none; places: of each pair; tiles: the expert of each.
struct PlaceArgs {  // count_pairs, place_pairs
  const int32_t* matrices;
  int32_t *counts, *order, *places, *tiles;
  int32_t pairs, experts, most_tiles;
};

}  // namespace cuda
}  // namespace twostroke
