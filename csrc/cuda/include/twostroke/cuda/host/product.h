// Products with packed weights as ops start them: activations rounded to int8 first, into scratch memory, where weights are whole numbers.
#pragma once
#include "twostroke/cuda/host/launch.h"
#include "twostroke/packed.h"

namespace twostroke {
namespace cuda {

constexpr int64_t kRowsAtOnce = 2048;  // of x in scratch memory: whole tiles; so many that weights are read once for most steps
constexpr int64_t kGatedRows = 512;    // of both halves of a gated product in scratch memory
constexpr int64_t kPairsAtOnce = 128;  // pairs of a row and an expert

// Rows of x, and where their products go. matrices: which matrix of a bank each row meets, on the device; NULL where there is one.
struct ProductRows {
  const float* x;
  int64_t x_stride, count;
  float* out;
  int64_t out_stride;
  bool add;
  const int32_t* matrices;
  bool gated = false;  // out has half of the matrix' rows: silu of the first half's products times the others
};

// Bytes of scratch memory for the rounded activations of up to `rows` rows; a multiple of 256.
int64_t product_scratch(const ts_weight& weight, int64_t rows);

// At most the rows that `scratch` is for.
int32_t start_product(ts_context& device, const ts_weight& weight, uint64_t scratch, int64_t scratch_rows, const ProductRows& rows);

// out = or += x @ W.T + bias for any number of rows, kRowsAtOnce at a time.
int32_t product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight, bool add);

// The same for more rows than most_few, in tiles (launch_tiles.cpp): the kernel, its scratch memory, its start.
constexpr int64_t most_few(int32_t weight_kind) { return is_stored_kind(weight_kind) ? 1 : kFewRows; }
KernelNumber tiles_kernel(int32_t weight_kind, int64_t rows);
int64_t tiles_scratch(const ts_weight& weight, int64_t rows);

// Rows in the order of a bank's matrices, whole tiles of kNarrowTokens for each: see RoundArgs and TileArgs.
struct TilePlaces {
  const int32_t *order, *tiles;
  const float* weights;
  int64_t chosen;
};

int32_t start_tiles(ts_context& device, const ts_weight& weight, uint64_t scratch, const ProductRows& rows, const TilePlaces* places = nullptr);

// What the second product of experts gives for pairs of a row and an expert. places: where each pair's row lies; NULL for one after the other.
struct PairResults {
  const float *rows, *weights;
  const int32_t* places;
};

// The rows of the first product of experts become what the second one reads, in their place; and out[first ...] of the second one's.
int32_t activate_pairs(ts_context& device, const ts_experts_args& args, float* middle, int64_t rows);
int32_t add_pairs(ts_context& device, const ts_experts_args& args, int64_t first, int64_t count, const PairResults& results);

// experts of many rows.
bool fits_tiles(const ts_experts_args& args);
int32_t run_in_tiles(ts_context& device, const ts_experts_args& args);

// out = or += x @ W.T + bias where W is of floats.
int32_t start_float(ts_context& device, LinearArgs args);

// The kernel for a product: by the kind of its weights, whether they are a bank of matrices, and the number of rows.
KernelNumber product_kernel(int32_t weight_kind, bool bank, int64_t rows);

inline int64_t round_up(int64_t bytes) { return divide_up(bytes, 256) * 256; }

}  // namespace cuda
}  // namespace twostroke
