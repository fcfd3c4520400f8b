// Sums of the weights of parts of rows, for the rows that need them. sample_best finds the peak, and sample_weigh adds. A weight takes many
// operations on doubles, and most GPUs have few units for them, so only weights that some sum needs are computed.
#include "best.h"
#include "weights.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(sample_best, SampleArgs) {
  const Likeliest drawn(args, block_index(), kDraw);
  tell_best(args, block_index(), drawn.best);
  if (!drawn_by_steps(args.rows[args.first + block_index()], args.count)) return;
  for (int i = thread_index(); i < kSteps; i += kThreads) steps_of(args, block_index())[i] = 0;
}

// Calls visit(logit) for the tokens of a part. After the end of the row the logits are -infinity, with the weight 0.
template <class Visit>
TS_DEVICE_INLINE void over_part(const SampleArgs& args, const Part& at, const float* row, Visit visit) {
  constexpr int kAtOnce = 4;
  TS_ONE_BY_ONE
  for (int i = 0; i < kPartTokens; i += kAtOnce) {
    float logits[kAtOnce];
    const int64_t first = at.first + i * kThreads + thread_index();
    TS_EVERY_LANE
    for (int j = 0; j < kAtOnce; ++j) logits[j] = first + j * kThreads < args.count ? row[first + j * kThreads] : -__builtin_inff();
    TS_EVERY_LANE
    for (int j = 0; j < kAtOnce; ++j) visit(first + j * kThreads, logits[j]);
  }
}

TS_DEVICE_INLINE void keep_sum(const SampleArgs& args, const Part& at, int purpose, uint64_t own) {
  const uint64_t sum = block_sum(own);
  if (thread_index() == 0) sums_of(args, at.row, purpose)[at.number] = sum;
}

// A weight is cut into three pieces, so that 32 bits hold the sum of the pieces of a part.
constexpr int kPieceBits = 20, kWeightPieces = 3;
static_assert(kThreads * kPartTokens <= 1 << (32 - kPieceBits), "sums of pieces fit");

TS_SHARED(uint32_t, step_pieces, kWeightPieces* kSteps);

// Adds the weights of a part to the sums of their steps.
TS_DEVICE_INLINE void add_steps(const SampleArgs& args, const Part& at, const float* row, const Weights& weights) {
  for (int i = thread_index(); i < kWeightPieces * kSteps; i += kThreads) step_pieces[i] = 0;
  barrier();
  over_part(args, at, row, [&](int64_t, float logit) {
    const uint64_t weight = weights.of(logit);
    const int32_t step = weights.step_of(logit);
    TS_EVERY_LANE
    for (int piece = 0; piece < kWeightPieces; ++piece) {
      const uint32_t bits = static_cast<uint32_t>(weight >> (piece * kPieceBits)) & ((1u << kPieceBits) - 1);
      if (bits != 0) atomic_add(step_pieces, piece * kSteps + step, bits);
    }
  });
  barrier();
  for (int i = thread_index(); i < kSteps; i += kThreads) {
    uint64_t sum = 0;
    TS_EVERY_LANE
    for (int piece = 0; piece < kWeightPieces; ++piece) {
      const uint32_t bits = step_pieces[piece * kSteps + i];
      sum += static_cast<uint64_t>(bits) << (piece * kPieceBits);
    }
    if (sum != 0) atomic_add(steps_of(args, at.row) + i, sum);
  }
}

TS_KERNEL(sample_weigh, SampleArgs) {
  const Part at = part_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  const SampledRow& told = args.told[args.first + at.row];
  if (asked.num_top >= 0) {
    const Weights weights = raw_weights(args, told);
    uint64_t sum = 0;
    over_part(args, at, raw_of(args, at.row), [&](int64_t, float logit) { sum += weights.of(logit); });
    keep_sum(args, at, kTell, sum);
  }
  const Choice choice(asked, args.count);
  if (choice.some || !is_drawn(asked, told.best)) return;
  const Weights weights = drawn_weights(args, asked, told.best);
  if (choice.share) return add_steps(args, at, drawn_from(args, at.row), weights);
  const uint64_t least = weights.least(asked);
  uint64_t sum = 0;
  over_part(args, at, drawn_from(args, at.row), [&](int64_t, float logit) { sum += likely(weights.of(logit), least); });
  keep_sum(args, at, kDraw, sum);
}

// Sums of the weights that top-p and min-p keep, after sample_cut.
TS_KERNEL(sample_keep, SampleArgs) {
  const Part at = part_of(args);
  const SampleRow& asked = args.rows[args.first + at.row];
  const SampledRow& told = args.told[args.first + at.row];
  if (!drawn_by_steps(asked, args.count) || !is_drawn(asked, told.best)) return;
  const Weights weights = drawn_weights(args, asked, told.best);
  const uint64_t least = weights.least(asked), last = args.cuts[at.row];
  uint64_t sum = 0;
  over_part(args, at, drawn_from(args, at.row), [&](int64_t token, float logit) {
    if (key_of(rank_of(logit), token) >= last) sum += likely(weights.of(logit), least);
  });
  keep_sum(args, at, kDraw, sum);
}

}  // namespace cuda
}  // namespace twostroke
