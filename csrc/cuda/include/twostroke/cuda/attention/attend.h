// Attention over latents: an online softmax over tiles of 64 positions, and a merge over segments of 512. A block has one row and one query
// head. For scores a thread has one position of the tile; for sums it has each 64th dimension.
#pragma once
#include "twostroke/cuda/attention/rows.h"

namespace twostroke {
namespace cuda {

static_assert(kTile == kGroupThreads, "a thread a position");
constexpr int kSums = kMostDim / kGroupThreads;  // dimensions of a thread

// A thread's part of a row's sums stays in registers only where every loop over it is unrolled.
#define TS_EVERY_SUM TS_EVERY_LANE

TS_SHARED(float, tile_scores, kTile);
TS_SHARED(float, tile_weights, kTile);
TS_SHARED(float, row_totals, kLanes);

// One row of the batch and one query head, with its sequence and the positions [begin, end) that it sees.
struct QueryRow {
  int64_t token, head, kv_head, position, begin, end;
  const int32_t* pages;
};

TS_DEVICE_INLINE QueryRow query_row(const AttentionArgs& args) {
  const int64_t token = block_index() / args.heads, head = block_index() % args.heads;
  const RowPlace of = place_of_row(args.row_starts, args.context_tokens, args.sequences, token);
  const int64_t context = args.context_tokens[of.sequence], position = of.positions - 1;
  const int64_t begin = first_seen(args.window, position);
  const int64_t end = position + 1 + args.ahead < context ? position + 1 + args.ahead : context;
  return {token, head, head / (args.heads / args.layer.kv_heads), position, begin, end, args.page_table + of.sequence * args.table_stride};
}

// A thread's part of a row's result: sums of its dimensions, and, where `thread` is below 16, the sum of weights of that lane.
struct Partial {
  float sums[kSums], peak, total;

  void clear() {
    TS_EVERY_SUM
    for (int j = 0; j < kSums; ++j) sums[j] = 0.0f;
    peak = kLowest;
    total = 0.0f;
  }
  // The tile's scores are in tile_scores. Raises the peak. Returns the factor for earlier sums, and writes the tile's own peak to *found.
  float raise(int64_t first, int64_t last, float* found) {
    float most = kLowest;
    for (int64_t p = first; p < last; ++p) most = larger(most, tile_scores[p]);
    *found = most;
    const float before = peak;
    peak = larger(most, before);
    return exp2_negative(before - peak);
  }
  // Adds the tile's weights, which are in tile_weights.
  void add_total(float rescale) {
    const int32_t lane = thread_index();
    if (lane >= kLanes) return;
    const float first = tile_weights[lane] + tile_weights[lane + kLanes];
    const float second = tile_weights[lane + 2 * kLanes] + tile_weights[lane + 3 * kLanes];
    total = fma(total, rescale, first + second);
  }
  // Merges this result with `later`, which belongs to later positions.
  void merge(const Partial& later) {
    const float now = larger(later.peak, peak), keep = exp2_negative(peak - now), add = exp2_negative(later.peak - now);
    peak = now;
    total = fma(later.total, add, total * keep);
    TS_EVERY_SUM
    for (int j = 0; j < kSums; ++j) sums[j] = fma(later.sums[j], add, sums[j] * keep);
  }
};

TS_DEVICE_INLINE void store_row(const AttentionArgs& args, const QueryRow& row, const Partial& whole) {
  const int32_t thread = thread_index();
  if (thread < kLanes) row_totals[thread] = whole.total;
  barrier();
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = row_totals[i];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  const float inverse = inverse_of(args, row.head, whole.peak, lanes[0]);
  float* out = args.out + row.token * args.out_stride + row.head * args.layer.value_dim;
  TS_EVERY_SUM
  for (int j = 0; j < kSums; ++j) {
    const int64_t d = thread + j * kGroupThreads;
    if (d < args.layer.value_dim) out[d] = whole.sums[j] * inverse;
  }
}

// Calls tile(start, first, last, partial) for every tile that the row sees: the positions [first, last), counted from `start`.
template <class TileWork>
TS_DEVICE_INLINE void each_tile(const AttentionArgs& args, const QueryRow& row, const TileWork& tile) {
  Partial whole;
  whole.clear();
  for (int64_t segment = row.begin / kSegment; segment * kSegment < row.end; ++segment) {
    Partial own;
    own.clear();
    for (int64_t start = segment * kSegment; start < row.end && start < (segment + 1) * kSegment; start += kTile) {
      if (start + kTile <= row.begin) continue;
      const int64_t first = row.begin > start ? row.begin - start : 0, last = row.end - start < kTile ? row.end - start : kTile;
      tile(start, first, last, own);
    }
    whole.merge(own);
  }
  store_row(args, row, whole);
}

// The same for K and V in floats. score(position) is the score of this thread's position; value(position, d) is one number of V.
template <class Score, class Value>
TS_DEVICE_INLINE void each_float_tile(const AttentionArgs& args, const QueryRow& row, const Score& score, const Value& value) {
  const int32_t thread = thread_index();
  const int64_t value_dim = args.layer.value_dim;
  each_tile(args, row, [&](int64_t start, int64_t first, int64_t last, Partial& own) {
    const bool seen = thread >= first && thread < last;
    const float own_score = seen ? score(start + thread) : kLowest;
    tile_scores[thread] = own_score;
    barrier();
    float found;
    const float rescale = own.raise(first, last, &found);
    tile_weights[thread] = seen ? exp2_negative(own_score - own.peak) : 0.0f;
    barrier();
    own.add_total(rescale);
    TS_EVERY_SUM
    for (int j = 0; j < kSums; ++j) {
      const int64_t d = thread + j * kGroupThreads;
      if (d >= value_dim) continue;
      float sum = own.sums[j] * rescale;
      for (int64_t p = first; p < last; ++p) sum = fma(tile_weights[p], value(start + p, d), sum);
      own.sums[j] = sum;
    }
  });
}

}  // namespace cuda
}  // namespace twostroke
