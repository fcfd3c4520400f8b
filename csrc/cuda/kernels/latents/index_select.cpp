// index_select: the positions that each row attends to. index_scores computes the scores of all visible positions, with a thread for each
// position. index_choose finds the largest, with a block for each row.
#include "twostroke/cuda/attention/attend.h"
#include "twostroke/cuda/attention/latents.h"
#include "twostroke/cuda/attention/sequences.h"
#include "twostroke/cuda/machine/search.h"

namespace twostroke {
namespace cuda {

constexpr int kIndexHeads = 8;  // heads that are multiplied by a number of a key at once

TS_SHARED(Words4, index_query, kMostLatent* kIndexHeads / 4);  // for each dimension, the numbers of all these heads

TS_DEVICE_INLINE RowPlace place_of(const SelectArgs& args, int64_t row) {
  return place_of_row(args.row_starts, args.context_tokens, args.sequences, row);
}

// A block has one row and 64 positions.
TS_KERNEL(index_scores, SelectArgs) {
  const int64_t place = block_index() / args.tiles, row = args.first_row + place, dim = args.dim;
  const RowPlace of = place_of(args, row);
  const int64_t position = block_index() % args.tiles * kGroupThreads + thread_index();
  const bool seen = position < of.positions;
  const float *q = args.q + row * args.q_stride, *weights = args.weights + row * args.weights_stride;
  float sum = 0.0f;
  for (int64_t head = 0; head < args.heads; head += kIndexHeads) {
    for (int64_t i = thread_index(); i < dim * kIndexHeads / 4; i += kGroupThreads) {
      const int64_t d = i / (kIndexHeads / 4), first = head + i % (kIndexHeads / 4) * 4;
      Words4 four;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) four[j] = first + j < args.heads ? bits_of(q[(first + j) * dim + d]) : 0;
      index_query[i] = four;
    }
    barrier();
    if (seen) {
      const LatentPosition key(args.layer, args.page_table + of.sequence * args.table_stride, position);
      float found[kIndexHeads] = {};
      _Pragma("clang loop unroll_count(4)")
      for (int64_t d = 0; d < dim; ++d) {
        const float number = key[d];
        TS_EVERY_LANE
        for (int quad = 0; quad < kIndexHeads / 4; ++quad) {
          const Words4 four = index_query[d * (kIndexHeads / 4) + quad];
          TS_EVERY_LANE
          for (int j = 0; j < 4; ++j) found[4 * quad + j] = fma(float_of(four[j]), number, found[4 * quad + j]);
        }
      }
      TS_EVERY_LANE
      for (int j = 0; j < kIndexHeads; ++j)
        if (head + j < args.heads) sum = fma(weights[head + j], larger(0.0f, found[j]), sum);
    }
    barrier();
  }
  if (seen) args.scores[place * args.positions + position] = sum;
}

// The rank rises with the score; NaN has the highest.
TS_DEVICE_INLINE uint32_t index_rank(float score) {
  const uint32_t bits = bits_of(score);
  if (score != score) return 0xffffffffu;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The block has kThreads threads. `positions` is the number of scores. Where entries are chosen, a score stands for several positions. Each
// thread has consecutive scores.
TS_KERNEL(index_choose, SelectArgs) {
  const int64_t place = block_index(), row = args.first_row + place, positions = place_of(args, row).positions / args.rate;
  const float* scores = args.scores + place * args.positions;
  float* out = args.out + row * args.out_stride;
  const bool all = positions <= args.count;
  uint64_t least = 0;
  if (!all) least = find_key(scores, positions, static_cast<uint64_t>(args.count), index_rank, [](float) { return uint64_t{1}; });
  const int64_t each = (positions + kThreads - 1) / kThreads, first = thread_index() * each;
  const int64_t end = first + each < positions ? first + each : positions;
  const auto chosen = [&](int64_t i) { return key_of(index_rank(scores[i]), i) >= least; };
  uint64_t own = 0;
  for (int64_t i = first; i < end; ++i) own += chosen(i) ? 1 : 0;
  int64_t made = static_cast<int64_t>(block_sum_up_to(own) - own);
  for (int64_t i = first; i < end; ++i)
    if (chosen(i)) out[made++] = static_cast<float>(i);
  for (int64_t i = positions + thread_index(); i < args.count; i += kThreads) out[i] = -1.0f;
}

}  // namespace cuda
}  // namespace twostroke
