// The product of a matrix of int8 or int4 with one row of activations, near the rate at which memory delivers the matrix. A block rounds its
// row once, into shared memory, while its first weights are under way. Each warp multiplies its groups as small matrices, whose columns are
// all this row. Sums of groups go to shared memory, and one warp folds those of a strip in order, while the other warps go on with the next
// strip.
#include "twostroke/cuda/products/hold_row.h"
#include "twostroke/cuda/products/stream.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kRowSpan = 32;  // groups between two barriers

TS_SHARED(uint64_t, row_terms, 2 * kRowSpan * kStreamStrip);  // sums of groups as floats, and their factors, for two spans in turn

// Folds the groups of a span in order. They begin at `at` in row_terms.
TS_DEVICE_INLINE float fold_row(int32_t at, int32_t groups, float sum) {
  _Pragma("clang loop unroll_count(4)")
  for (int32_t i = 0; i < groups; ++i) {
    const uint64_t term = row_terms[(at + i) * kStreamStrip + warp_lane()];
    sum = fma(float_of(static_cast<uint32_t>(term)), float_of(static_cast<uint32_t>(term >> 32)), sum);
  }
  return sum;
}

// Multiplies a group by the row and stores the term of place `lane` of the strip. Each step is loaded again as soon as it is
// multiplied. Where a group is short, the row has zeros.
template <class Step>
TS_DEVICE_INLINE void multiply_row(StreamGroup<Step>& own, const StreamCursor<Step>& coming, int32_t group, int32_t to) {
  const uint64_t held = held_scales[group];
  const int32_t correction = static_cast<int32_t>(held >> 32), t = warp_lane() % 4;
  int32_t sums[2][4];
  TS_EVERY_LANE
  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = correction;
  TS_EVERY_LANE
  for (int i = 0; i < kStreamSteps; ++i) {
    own.steps[i].multiply(four_of(held_row, (group * kStreamSteps + i) * 4 + t), sums);
    coming.load(own, i);
  }
  const int32_t lower = t == 0 ? sums[0][0] : sums[0][2], upper = t == 2 ? sums[1][0] : sums[1][2];
  const float sum = static_cast<float>(t < 2 ? lower : upper);
  const float factor = float_of(static_cast<uint32_t>(held)) * widen(static_cast<uint16_t>(own.factor));
  row_terms[to * kStreamStrip + warp_lane()] = bits_of(sum) | static_cast<uint64_t>(bits_of(factor)) << 32;
  coming.load_factor(own);
}

template <class Step>
TS_DEVICE_INLINE void linear_row_of(const LinearArgs& args) {
  const StreamMatrix<Step> matrix(args);
  StreamCursor<Step> coming(matrix);
  StreamGroup<Step> own;
  TS_EVERY_LANE
  for (int i = 0; i < kStreamSteps; ++i) coming.load(own, i);
  coming.load_factor(own);
  hold_row(args);  // waits for earlier kernels
  coming.next();
  StreamFinish finish = {0.0f, 0.0f};
  float sum = 0.0f, gate = 0.0f;
  int32_t unit = static_cast<int32_t>(block_index()), half = 0, room = 0, folds = 0;
  while (unit < matrix.strips) {
    const int32_t row = unit * kStreamStrip + Step::row_at(warp_lane());
    const bool is_own = warp_index() == folds;  // whether this warp folds the strip
    for (int32_t span = 0; span < matrix.groups; span += kRowSpan) {
      const int32_t end = span + kRowSpan < matrix.groups ? span + kRowSpan : matrix.groups;
      for (int32_t group = span + warp_index(); group < end; group += kStreamWarps) {
        multiply_row(own, coming, group, room + group - span);
        coming.next();
      }
      if (is_own && end == matrix.groups) finish.load(args, 0, row, half);
      barrier();  // the terms of the span before this one are folded, too
      if (is_own) sum = fold_row(room, end - span, sum);
      room = kRowSpan - room;
    }
    if (is_own) finish.store(args, 0, row, half, sum, gate);
    sum = 0.0f;
    if (++half < matrix.halves) continue;
    half = 0;
    unit += matrix.parts;
    folds = (folds + 1) % kStreamWarps;
  }
}

TS_KERNEL_AHEAD(linear_row_int8, LinearArgs) {
  at_most_threads<2 * kStreamThreads>();  // this many registers let two blocks fit on a multiprocessor
  linear_row_of<StreamInt8>(args);
}

TS_KERNEL_AHEAD(linear_row_int4, LinearArgs) {
  at_most_threads<2 * kStreamThreads>();
  linear_row_of<StreamInt4>(args);
}

}  // namespace cuda
}  // namespace twostroke
