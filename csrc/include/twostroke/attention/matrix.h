// Attention's two products on matrix registers (AMX bf16), directly from bf16 pages.
//
// A query is the sum of three bf16 numbers and a weight the sum of two. So no part of a float32 query is lost, and 2^-17 of a weight.
// Products of bf16 are exact, and sums are float32. Rows of a tile are independent, and the order of every sum is that of the instruction,
// whichever rows share the tile. So a row's bits do not depend on its neighbours, and one row is computed in the same way as many.
#pragma once
#include "twostroke/attention/tile.h"

namespace twostroke {

constexpr int kQueryParts = 3, kWeightParts = 2;
constexpr int64_t kChunk = 32;  // dimensions that one tile multiplies: 16 pairs; head_dim must be a multiple of it
constexpr int64_t kQueryTile = 16 * kChunk, kWeightTile = 16 * TS_PAGE_TOKENS;  // the elements of a tile

inline int64_t query_part_floats(int64_t capacity, int64_t dim) { return capacity * dim * kQueryParts / 2; }
inline int64_t weight_part_floats(int64_t capacity) { return capacity * kTile * kWeightParts / 2; }

// Only levels with matrix registers have these functions: x86/attention_matrix.h.
inline void matrix_attention_begin(int64_t rows);
inline void matrix_attention_end();
inline void split_queries(const float* from, int64_t rows, int64_t dim, uint16_t* to);

}  // namespace twostroke
