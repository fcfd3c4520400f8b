// Products with packed weights, as ops start them. Where weights are whole numbers, activations are first rounded to int8, into scratch
// memory.
#pragma once
#include "twostroke/cuda/host/launch.h"
#include "twostroke/products/packed.h"

namespace twostroke {
namespace cuda {

// rows of x in scratch memory: whole tiles, and enough of them that weights are read once for most steps
constexpr int64_t kRowsAtOnce = 2048;
constexpr int64_t kGatedRows = 512;  // rows in scratch memory of both halves of a gated product
constexpr int64_t kPairsAtOnce = 128;  // pairs of a row and an expert that are computed at once

// Rows of x, and the place of their products. matrices: the matrix of a bank for each row, on the device; NULL where there is one matrix.
struct ProductRows {
  const float* x;
  int64_t x_stride, count;
  float* out;
  int64_t out_stride;
  bool add;
  const int32_t* matrices;
  bool gated = false;  // out has half as many columns as the matrix has rows: silu of the first half's products times the others
};

// The bytes of scratch memory for the rounded activations of up to `rows` rows, a multiple of 256.
int64_t product_scratch(const ts_weight& weight, int64_t rows);

// Starts the product. `scratch` must have room for all of these rows.
int32_t start_product(ts_context& device, const ts_weight& weight, uint64_t scratch, int64_t scratch_rows, const ProductRows& rows);

// Computes out = x @ W.T + bias, or adds it to out, for any number of rows, kRowsAtOnce at a time. positions: those of the rows, in the
// host's memory; without data all rows have one code.
int32_t product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight, bool add, const ts_indices& positions);

// Some rows at positions below kFirstPositions, which have two codes.
struct FirstRows {
  int32_t count, rows[kMostFirst];
};

// Finds such rows among `most` rows from `from` on. Returns how many rows may be computed together, because there are at most kMostFirst.
int64_t take_rows(FirstRows& first, const ts_weight& weight, const ts_indices& positions, int64_t from, int64_t most);
// Starts the products of these rows, for any rows of a product with this weight. put_first stores them in `out` after the product of all
// rows. scratch: first_scratch bytes, which nothing else writes in between.
int64_t first_scratch(const ts_weight& weight);
int32_t start_first(ts_context& device, const ts_weight& weight, uint64_t scratch, const FirstRows& first, const ProductRows& rows);
int32_t put_first(ts_context& device, const ts_weight& weight, uint64_t scratch, const FirstRows& first, const ProductRows& rows);

// The same for more rows than most_few, in tiles (launches/tiles.cpp): the choice of the kernel, its scratch memory, and its start.
constexpr int64_t most_few(int32_t weight_kind) { return is_stored_kind(weight_kind) ? 1 : kFewRows; }
KernelNumber tiles_kernel(int32_t weight_kind, int64_t rows);
int64_t tiles_scratch(const ts_weight& weight, int64_t rows);
// Whether this kernel can apply the gate itself, where the matrix has a gate in its first rows.
bool tiles_gate(const ts_context& device, const ts_weight& weight, int64_t rows);

// Rows in the order of a bank's matrices, with whole tiles of kNarrowTokens rows for each matrix: see RoundArgs and TileArgs.
struct TilePlaces {
  const int32_t *order, *tiles;
  const float* weights;
  int64_t chosen;
};

int32_t start_tiles(ts_context& device, const ts_weight& weight, uint64_t scratch, const ProductRows& rows, const TilePlaces* places = nullptr);

// What all kernels of tiles are told: how rows are rounded into scratch memory, and what is multiplied. room: the rows of scratch memory.
// scales: the place of the rows' scales there.
RoundArgs common_round_args(const ts_weight& weight, const ProductRows& rows, uint64_t scratch, int64_t room, int64_t scales);
TileArgs common_tile_args(const ts_weight& weight, const ProductRows& rows, const RoundArgs& round);

// The same for prompts, on devices that have products of warpgroups (launches/prompt.cpp).
bool fits_prompt(const ts_context& device, const ts_weight& weight, int64_t rows);
bool gates_prompt(const ts_context& device, const ts_weight& weight, int64_t rows);  // whether the kernel can apply the gate itself
int64_t prompt_scratch(const ts_weight& weight, int64_t rows);
int32_t start_prompt(ts_context& device, const ts_weight& weight, uint64_t scratch, const ProductRows& rows);

// The results of the second product of experts, for pairs of a row and an expert. places: the place of each pair's row; NULL where they are
// in order.
struct PairResults {
  const float *rows, *weights;
  const int32_t* places;
};

// activate_pairs turns the rows of the first product of experts, in place, into the input of the second one. The next function adds the
// second product's rows to out[first ...].
int32_t activate_pairs(ts_context& device, const ts_experts_args& args, float* middle, int64_t rows);
int32_t add_pairs(ts_context& device, const ts_experts_args& args, int64_t first, int64_t count, const PairResults& results);

// The op experts for many rows.
bool fits_tiles(const ts_experts_args& args);
int32_t run_in_tiles(ts_context& device, const ts_experts_args& args);

// Computes out = x @ W.T + bias, or adds it to out, for float W.
int32_t start_float(ts_context& device, LinearArgs args);

// Returns the kernel for a product, chosen by the kind of the weights, by whether they are a bank of matrices, and by the number of rows.
KernelNumber product_kernel(int32_t weight_kind, bool bank, int64_t rows);

inline int64_t round_up(int64_t bytes) { return divide_up(bytes, 256) * 256; }

}  // namespace cuda
}  // namespace twostroke
