// Rows of logits, and the scratch memory of each row.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/machine/order.h"

namespace twostroke {
namespace cuda {

constexpr uint32_t kLeastFinite = 0x00800000u;  // the rank of the least finite logit; that of -infinity is one below it

// The logit of a key. It is +0 for both zeros, which have the same weight.
TS_DEVICE_INLINE float logit_in(uint64_t key) {
  const uint32_t rank = rank_in(key);
  return float_of(rank >> 31 ? rank & 0x7fffffffu : ~rank);
}

TS_DEVICE_INLINE float* adjusted_of(const SampleArgs& args, int64_t row) { return args.adjusted + row * args.count; }
TS_DEVICE_INLINE const float* raw_of(const SampleArgs& args, int64_t row) { return args.logits + row * args.stride; }
// The row with its changes, from which tokens are drawn.
TS_DEVICE_INLINE const float* drawn_from(const SampleArgs& args, int64_t row) {
  return args.rows[args.first + row].changed ? adjusted_of(args, row) : raw_of(args, row);
}

TS_DEVICE_INLINE uint64_t* groups_of(const SampleArgs& args, int64_t row, int purpose) {
  return args.groups + (row * kPurposes + purpose) * args.parts * kPartGroups;
}
TS_DEVICE_INLINE uint64_t* steps_of(const SampleArgs& args, int64_t row) { return args.steps + row * kSteps; }
TS_DEVICE_INLINE uint64_t* sums_of(const SampleArgs& args, int64_t row, int purpose) { return args.sums + (row * kPurposes + purpose) * args.parts; }

// The part of a row that a block has, in a kernel with `parts` blocks for each row.
struct Part {
  int64_t row, number, first;
};

TS_DEVICE_INLINE Part part_of(const SampleArgs& args) {
  const int64_t number = block_index() % args.parts;
  return {block_index() / args.parts, number, number * kThreads * kPartTokens};
}

// A thread's tokens of a part and their logits. Tokens of neighbouring threads lie next to each other. A token after the end of the row has
// the rank 0.
struct PartTokens {
  int64_t first;
  float logits[kPartTokens];
  uint32_t ranks[kPartTokens];

  TS_MEMBER_INLINE PartTokens(const float* row, int64_t begin, int64_t count) : first(begin + thread_index()) {
    TS_EVERY_LANE
    for (int i = 0; i < kPartTokens; ++i) logits[i] = token(i) < count ? row[token(i)] : 0.0f;
    TS_EVERY_LANE
    for (int i = 0; i < kPartTokens; ++i) ranks[i] = token(i) < count ? rank_of(logits[i]) : 0;
  }
  TS_MEMBER_INLINE int64_t token(int i) const { return first + i * kThreads; }
};

}  // namespace cuda
}  // namespace twostroke
