// index_select: the positions that each row attends to. index_scores makes the scores of all visible ones, a thread a position; index_choose
// finds the largest by a search of their bits, eight at a time, a block a row.
// Knows: latents.h. Must not know: attention.
#include "twostroke/cuda/attend.h"
#include "twostroke/cuda/latents.h"
#include "twostroke/cuda/sequences.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, index_query, kMostLatent);
TS_SHARED(int32_t, digit_counts, kThreads);
TS_SHARED(uint32_t, found_rank, 2);  // the least rank so far, and how many of it are still to be found

TS_DEVICE_INLINE RowPlace place_of(const SelectArgs& args, int64_t row) {
  return place_of_row(args.row_starts, args.context_tokens, args.sequences, row);
}

// A block a row and 64 positions.
TS_KERNEL(index_scores, SelectArgs) {
  const int64_t place = block_index() / args.tiles, row = args.first_row + place, dim = args.dim;
  const RowPlace of = place_of(args, row);
  const int64_t position = block_index() % args.tiles * kGroupThreads + thread_index();
  const bool seen = position < of.positions;
  float sum = 0.0f;
  for (int64_t head = 0; head < args.heads; ++head) {
    const float* q = args.q + row * args.q_stride + head * dim;
    for (int64_t d = thread_index(); d < dim; d += kGroupThreads) index_query[d] = q[d];
    barrier();
    if (seen) {
      const LatentPosition key(args.layer, args.page_table + of.sequence * args.table_stride, position);
      float score = 0.0f;
      for (int64_t d = 0; d < dim; ++d) score = fma(index_query[d], key[d], score);
      sum = fma(args.weights[row * args.weights_stride + head], larger(0.0f, score), sum);
    }
    barrier();
  }
  if (seen) args.scores[place * args.positions + position] = sum;
}

// Rises with the score; NaN above all.
TS_DEVICE_INLINE uint32_t index_rank(float score) {
  const uint32_t bits = bits_of(score);
  if (score != score) return 0xffffffffu;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// found_rank: the rank of the count-th largest score, and how many of that rank are among the largest. By all threads of the block.
TS_DEVICE_INLINE void find_least(const float* scores, int64_t positions, int64_t count) {
  const uint32_t own = static_cast<uint32_t>(thread_index());
  if (own == 0) {
    found_rank[0] = 0;
    found_rank[1] = static_cast<uint32_t>(count);
  }
  barrier();
  for (int shift = 24; shift >= 0; shift -= 8) {
    const uint32_t prefix = found_rank[0];
    int32_t counted = 0;  // of the ranks that begin with the prefix and go on with this thread's digit
    for (int64_t i = 0; i < positions; ++i) {
      const uint32_t rank = index_rank(scores[i]);
      const bool begins = shift == 24 || rank >> (shift + 8) == prefix >> (shift + 8);
      counted += begins && (rank >> shift & 255u) == own ? 1 : 0;
    }
    digit_counts[own] = counted;
    barrier();
    if (own == 0) {
      int32_t left = static_cast<int32_t>(static_cast<uint32_t>(found_rank[1])), digit = kThreads - 1;
      for (; digit_counts[digit] < left; --digit) left -= digit_counts[digit];
      found_rank[0] = prefix | static_cast<uint32_t>(digit) << shift;
      found_rank[1] = static_cast<uint32_t>(left);
    }
    barrier();
  }
}

// kThreads threads: one for each digit of eight bits. `positions` are of scores: entries, where one stands for several.
TS_KERNEL(index_choose, SelectArgs) {
  const int64_t place = block_index(), row = args.first_row + place, positions = place_of(args, row).positions / args.rate;
  const float* scores = args.scores + place * args.positions;
  const bool all = positions <= args.count;
  if (!all) find_least(scores, positions, args.count);
  if (thread_index() != 0) return;
  const uint32_t least = all ? 0 : static_cast<uint32_t>(found_rank[0]);
  int64_t made = 0, equals = all ? positions : static_cast<int64_t>(static_cast<uint32_t>(found_rank[1]));
  float* out = args.out + row * args.out_stride;
  for (int64_t i = 0; i < positions && made < args.count; ++i) {
    const uint32_t rank = index_rank(scores[i]);
    if (rank > least || (rank == least && equals-- > 0)) out[made++] = static_cast<float>(i);
  }
  for (; made < args.count; ++made) out[made] = -1.0f;
}

}  // namespace cuda
}  // namespace twostroke
