// Arguments of the kernels that multiply tiles of many rows of activations by panels of weights; see arguments.h.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/products/packed.h"

namespace twostroke {
namespace cuda {

constexpr int kTileTokens = 128;  // rows of x that a block of linear_tile multiplies by one panel; scratch memory holds whole tiles
constexpr int kTileThreads = 256;
constexpr int kNarrowTokens = 64;  // the same number for linear_narrow
constexpr int kNarrowTileThreads = 256;
constexpr int kStepTokens = 32;  // the same number for linear_steps, which multiplies stored kinds
constexpr int kFewStepTokens = 16;  // the same number where a step has no more rows than this
constexpr int kStepStrip = 32;  // rows of a matrix that a block of linear_steps has
constexpr int kStepThreads = 256;
constexpr int kWideTokens = 64;  // the same numbers for linear_wide, which multiplies many rows by stored kinds
constexpr int kWideStrip = 128;
constexpr int kWideThreads = 128;
constexpr int kPromptTileThreads = 384;  // threads of a block of linear_prompt
constexpr int64_t kPromptPart = 64;  // rows of x that a warpgroup of linear_prompt multiplies at once; a block has two or three such parts
constexpr int64_t kPromptPiecesAtOnce = 4;  // pieces of 128 columns that a warp of quantize_prompt rounds at once
constexpr int kPlaceThreads = 256;  // threads of place_pairs
constexpr int kTileRoundWarps = 8;  // warps of a block of quantize_tiles; each warp rounds one group of one row
constexpr int kTileRoundThreads = 32 * kTileRoundWarps;

// How a group's int32 sum becomes a float. Where |sum| <= 2^22, bits + correction is the float 1.5 * 2^23 + sum; else it is the sum itself.
struct TilePair {
  float scale;
  int32_t correction;
};

// The kernel rounds rows (rows, columns) to int8 q (padded / 64, room, 64) and pairs (groups, room).
struct RoundArgs {
  const float* x;
  int8_t* q;
  TilePair* pairs;
  int64_t x_stride, rows, room, columns, padded, group, groups;
  int32_t added;  // the number that is added to corrections
  // quantize_steps uses these. scales has the shape (groups, room); for fine kinds (padded / 32, room). pairs has the shape (padded / sub,
  // room), and its scales are the sums of steps. For fine kinds they are these sums times the scale, or the scale alone where nothing is
  // subtracted.
  float* scales;
  int32_t sub, offset, fine, minimum;
  // For experts: the pair of each row of q, below 0 where there is none. Each row of x has `chosen` pairs; 0 means that x has the rows of
  // q. NULL where there are no experts.
  const int32_t* order;
  const float* weights;  // the weight of each pair, by which x is multiplied; NULL where there are none
  int64_t chosen;
  int64_t rotated;  // the value of ts_weight
};

struct TileArgs {  // computes out = x @ W.T + bias, or adds it to out
  float* out;
  const uint8_t* data;
  const uint16_t* scales;
  const float* bias;
  const int8_t* q;
  const TilePair* pairs;
  int64_t out_stride, tokens, room, rows, panel_bytes;
  int32_t group, groups, steps, panels, tiles;  // steps: the number of steps of 64 columns; tiles: the number of tiles of tokens
  int32_t add, small;  // small: whether sums are below 2^22
  StoredLayout stored;  // linear_steps uses these four
  const float* x_scales;  // linear_prompt uses it too
  int32_t blocks, wide;  // blocks: the blocks that share all tiles; wide: whether a block has kStepTokens rows and not kFewStepTokens
  // for a bank: the matrix of each tile of kNarrowTokens rows, and the pair of each place; NULL for one matrix
  const int32_t *matrices, *order;
  int32_t gated;  // for linear_prompt and linear_wide: out is silu(products of the matrix' first rows) times the products of its last rows
};

// Pairs of a row and an expert in the order of experts. Each expert begins with a new tile of kNarrowTokens places. order: the pair of each
// place, below 0 where there is none; places: the place of each pair; tiles: the expert of each tile.
struct PlaceArgs {  // arguments of count_pairs and place_pairs
  const int32_t* matrices;
  int32_t *counts, *order, *places, *tiles;
  int32_t pairs, experts, most_tiles;
};

}  // namespace cuda
}  // namespace twostroke
