// Products of a matrix of int8 or int4 with two to eight rows of activations, which quantize has rounded, near the rate at which memory
// delivers the matrix. Each warp multiplies its groups by all rows, as small matrices. Sums of groups go to shared memory. Each warp folds
// the strip for one row of activations, while its next weights are under way.
#include "twostroke/cuda/products/stream.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kRowsSpan = 16;  // groups between two barriers
constexpr int32_t kRowsFours = kStreamStrip / 4 + 1;  // fours of sums of a row of activations; one more than needed, against bank conflicts

TS_SHARED(Words4, rows_sums, 2 * kRowsSpan * kStreamRows * kRowsFours);  // sums of groups as floats, for two spans in turn
TS_SHARED(float, rows_factors, 2 * kRowsSpan * kStreamStrip);  // scales of the weights
TS_SHARED(float, rows_scales, 2 * kRowsSpan * kStreamRows);  // scales of the activations

// A thread's part of a group of the activations, with zeros where the group is short. It has row g of them for products, and the corrections of rows 2t and 2t + 1. Where there
// are fewer rows, the last one stands for those that are not there.
struct RowsGroup {
  Words4 steps[kStreamSteps];
  int32_t corrections[2];
  float scale;  // the number of row `lane % 8`

  TS_MEMBER_INLINE void load(const LinearArgs& args, int32_t group, int32_t count) {
    const int32_t lane = warp_lane(), last = static_cast<int32_t>(args.tokens) - 1, groups = static_cast<int32_t>(args.groups);
    const auto there = [&](int32_t row) { return row < last ? row : last; };
    const int8_t* from = args.q + int64_t{there(lane / 4)} * args.padded + group * kStreamGroup + lane % 4 * 16;
    TS_EVERY_LANE
    for (int i = 0; i < kStreamSteps; ++i) steps[i] = load16_if(i < count, from + i * kStep);
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) corrections[i] = args.corrections[there(lane % 4 * 2 + i) * groups + group];
    scale = args.x_scales[there(lane % kStreamRows) * groups + group];
  }
};

// Multiplies a group by all rows, and stores its sums at place `to`.
template <class Step>
TS_DEVICE_INLINE void multiply_rows(StreamGroup<Step>& own, const StreamCursor<Step>& coming, const RowsGroup& x, int32_t to) {
  const int32_t lane = warp_lane();
  int32_t sums[2][4];
  TS_EVERY_LANE
  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = x.corrections[i % 2];
  TS_EVERY_LANE
  for (int i = 0; i < kStreamSteps; ++i) {
    own.steps[i].multiply(x.steps[i], sums);
    coming.load(own, i);
  }
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    Words4 four;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) four[r] = bits_of(static_cast<float>(sums[r / 2][r % 2 * 2 + i]));
    rows_sums[(to * kStreamRows + lane % 4 * 2 + i) * kRowsFours + lane / 4] = four;
  }
  rows_factors[to * kStreamStrip + lane] = widen(static_cast<uint16_t>(own.factor));
  if (lane < kStreamRows) rows_scales[to * kStreamRows + lane] = x.scale;
  coming.load_factor(own);
}

// Folds the groups of a span in order, for row `warp` of the activations. They begin at `at`.
TS_DEVICE_INLINE float fold_rows(int32_t at, int32_t groups, float sum) {
  _Pragma("clang loop unroll_count(4)")
  for (int32_t i = at; i < at + groups; ++i) {
    const float whole = float_of(word_of(rows_sums, (i * kStreamRows + warp_index()) * kRowsFours * 4 + warp_lane()));
    sum = fma(whole, rows_scales[i * kStreamRows + warp_index()] * rows_factors[i * kStreamStrip + warp_lane()], sum);
  }
  return sum;
}

template <class Step>
TS_DEVICE_INLINE void linear_rows_of(const LinearArgs& args) {
  static_assert(kStreamWarps == kStreamRows, "each warp folds one row");
  const StreamMatrix<Step> matrix(args);
  StreamCursor<Step> coming(matrix);
  StreamGroup<Step> own;
  RowsGroup x;
  TS_EVERY_LANE
  for (int i = 0; i < kStreamSteps; ++i) coming.load(own, i);
  coming.load_factor(own);
  coming.next();
  wait_for_earlier();
  StreamFinish finish = {0.0f, 0.0f};
  float sum = 0.0f, gate = 0.0f;
  int32_t unit = static_cast<int32_t>(block_index()), half = 0, room = 0;
  const bool folds = warp_index() < args.tokens;
  while (unit < matrix.strips) {
    const int32_t row = unit * kStreamStrip + Step::row_at(warp_lane());
    for (int32_t span = 0; span < matrix.groups; span += kRowsSpan) {
      const int32_t end = span + kRowsSpan < matrix.groups ? span + kRowsSpan : matrix.groups;
      for (int32_t group = span + warp_index(); group < end; group += kStreamWarps) {
        x.load(args, group, matrix.steps_from(group));
        multiply_rows(own, coming, x, room + group - span);
        coming.next();
      }
      if (folds && end == matrix.groups) finish.load(args, warp_index(), row, half);
      barrier();  // the sums of the span before this one are folded, too
      if (folds) sum = fold_rows(room, end - span, sum);
      room = kRowsSpan - room;
    }
    if (folds) finish.store(args, warp_index(), row, half, sum, gate);
    sum = 0.0f;
    if (++half < matrix.halves) continue;
    half = 0;
    unit += matrix.parts;
  }
}

TS_KERNEL_AHEAD(linear_rows_int8, LinearArgs) {
  at_most_threads<2 * kStreamThreads>();  // this many registers let two blocks fit on a multiprocessor
  linear_rows_of<StreamInt8>(args);
}

TS_KERNEL_AHEAD(linear_rows_int4, LinearArgs) {
  at_most_threads<2 * kStreamThreads>();
  linear_rows_of<StreamInt4>(args);
}

}  // namespace cuda
}  // namespace twostroke
