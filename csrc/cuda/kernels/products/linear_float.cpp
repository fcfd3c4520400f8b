// Products with float weights (f32, bf16), with one kernel for each shape of block. launches/float.cpp chooses the kernel by the number of
// rows.
#include "twostroke/cuda/products/floats/chains.h"

namespace twostroke {
namespace cuda {

// One block multiplies kTokens rows of x, from first_token on, by rows of the matrix, from `row` on. kOnlyAligned: this kernel takes
// aligned rows of x only, and another kernel takes the others.
template <class Shape, int kPerWord, bool kOnlyAligned, class Weights, class X>
TS_DEVICE_INLINE void float_block(const LinearArgs& args, Weights& weights, X& x, int64_t matrix, int32_t first_token, int32_t tokens, int32_t row) {
  FloatSource from;
  from.weights = panel_of(args, matrix, row) + row % kPanel * 4;
  from.panel_bytes = args.panel_bytes;
  from.panels = static_cast<int32_t>(args.panels) - row / static_cast<int32_t>(kPanel);
  from.x = args.x + first_token * args.x_stride;
  from.x_stride = args.x_stride;
  from.words = static_cast<int32_t>(args.padded) / kPerWord;
  from.columns = static_cast<int32_t>(args.columns);
  from.tokens = tokens;
  float sums[Shape::kRows][Shape::kOwn];
  TS_EVERY_FLOAT
  for (int32_t r = 0; r < Shape::kRows; ++r) {
    TS_EVERY_FLOAT
    for (int32_t o = 0; o < Shape::kOwn; ++o) sums[r][o] = 0.0f;
  }
  if (kOnlyAligned || args.aligned != 0) add_by_part<Shape, kPerWord, true>(from, weights, x, sums);
  else add_by_part<Shape, kPerWord, false>(from, weights, x, sums);
  const int32_t own = warp_index() * Shape::kRows;
  TS_EVERY_FLOAT
  for (int32_t r = 0; r < Shape::kRows; ++r) {
    TS_EVERY_FLOAT
    for (int32_t o = 0; o < Shape::kOwn; ++o) {
      const int32_t out = row + own_row<Shape>(o);
      if (own + r < tokens && out < args.rows) finish(args, matrix, first_token + own + r, out, sums[r][o]);
    }
  }
}

// Blocks that share weights have consecutive numbers.
template <class Shape, bool kOnlyAligned, class Weights, class X>
TS_DEVICE_INLINE void float_rows(const LinearArgs& args, Weights& weights, X& x) {
  const bool bank = args.matrices != nullptr;
  const uint32_t all = static_cast<uint32_t>(args.tokens), together = bank ? 1 : Shape::kTokens, parts = (all + together - 1) / together;
  const uint32_t block = static_cast<uint32_t>(block_index());
  const int32_t first = static_cast<int32_t>(block % parts * together), row = static_cast<int32_t>(block / parts) * Shape::kMatrixRows;
  const int32_t left = static_cast<int32_t>(all) - first, tokens = left < static_cast<int32_t>(together) ? left : static_cast<int32_t>(together);
  const int64_t matrix = matrix_of(args, first);
  if (args.kind == TS_W_F32) float_block<Shape, 1, kOnlyAligned>(args, weights, x, matrix, first, tokens, row);
  else float_block<Shape, 2, kOnlyAligned>(args, weights, x, matrix, first, tokens, row);
}

#define TS_FLOAT_KERNEL(name, Shape, only_aligned)                                 \
  TS_SHARED(Words4, name##_weights, Shape::kSlots* Shape::kStageWeights);          \
  TS_SHARED(Words4, name##_x, Shape::kSlots* Shape::kStageX);                      \
  TS_KERNEL(name, LinearArgs) { float_rows<Shape, only_aligned>(args, name##_weights, name##_x); }

TS_FLOAT_KERNEL(linear_float, FewRows, false)
TS_FLOAT_KERNEL(linear_float_some, SomeRows, false)
TS_FLOAT_KERNEL(linear_float_more, MoreRows, true)
TS_FLOAT_KERNEL(linear_float_many, ManyRows, true)
TS_FLOAT_KERNEL(linear_float_wide, WideRows, true)

}  // namespace cuda
}  // namespace twostroke
