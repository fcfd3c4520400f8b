// place_scores: multiplies each head's vector by a vector of every place. A block has some rows, one head and kThreads places; a thread has
// one place. Each sum is one chain of products over the dimensions, in order.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {

constexpr int kPlaceQuads = kPlaceRows / 4;

TS_SHARED(Words4, place_rows, kMostDim* kPlaceQuads);  // for each dimension, the numbers of all rows

TS_KERNEL(place_scores, ts_place_scores_args) {
  const int64_t rows = args.x.rows, heads = args.x.heads, dim = args.x.dim, places = args.out.dim, parts = parts_of(places);
  const int64_t index = block_index() / parts, head = index % heads, first = index / heads * kPlaceRows;
  const float* x = args.x.data + head * dim;
  for (int64_t i = thread_index(); i < dim * kPlaceQuads; i += kThreads) {
    const int64_t d = i / kPlaceQuads, row = first + i % kPlaceQuads * 4;
    Words4 four;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) four[j] = row + j < rows ? bits_of(x[(row + j) * args.x.stride + d]) : 0;
    place_rows[i] = four;
  }
  barrier();
  const int64_t place = block_index() % parts * kThreads + thread_index();
  if (place >= places) return;
  const float* table = args.table.data + head * dim * places + place;
  float sums[kPlaceRows] = {};
  for (int64_t d = 0; d < dim; ++d) {
    const float number = table[d * places];
    TS_EVERY_LANE
    for (int quad = 0; quad < kPlaceQuads; ++quad) {
      const Words4 four = place_rows[d * kPlaceQuads + quad];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) sums[4 * quad + j] = fma(float_of(four[j]), number, sums[4 * quad + j]);
    }
  }
  float* out = args.out.data + first * args.out.stride + head * places + place;
  TS_EVERY_LANE
  for (int r = 0; r < kPlaceRows; ++r)
    if (first + r < rows) out[r * args.out.stride] = sums[r];
}

}  // namespace cuda
}  // namespace twostroke
