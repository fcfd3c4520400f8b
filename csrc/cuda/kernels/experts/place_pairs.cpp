// count_pairs and place_pairs put pairs of a row and an expert into the order of experts, so that each tile of rows needs one expert's
// matrices.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

constexpr int kPlaceWarps = kPlaceThreads / kWarp;
TS_SHARED(int32_t, warp_counts, kPlaceWarps);

// The sum over the threads before this one, and the sum over the whole block. Every thread calls it.
struct BlockSum {
  int32_t before, total;

  TS_MEMBER_INLINE explicit BlockSum(int32_t own) : before(own), total(0) {
    const int32_t lane = warp_lane();
    for (int32_t apart = 1; apart < kWarp; apart *= 2) {
      const int32_t other = static_cast<int32_t>(shuffle(static_cast<uint32_t>(before), lane < apart ? lane : lane - apart));
      if (lane >= apart) before += other;
    }
    barrier();  // after this, all threads have read the last sum
    if (lane == kWarp - 1) warp_counts[warp_index()] = before;
    barrier();
    before -= own;
    for (int32_t warp = 0; warp < kPlaceWarps; ++warp) {
      const int32_t of_warp = warp_counts[warp];
      if (warp < warp_index()) before += of_warp;
      total += of_warp;
    }
  }
};

// A block has one expert.
TS_KERNEL(count_pairs, PlaceArgs) {
  const int32_t expert = static_cast<int32_t>(block_index());
  int32_t own = 0;
  for (int32_t pair = thread_index(); pair < args.pairs; pair += kPlaceThreads) own += args.matrices[pair] == expert;
  const BlockSum sum(own);
  if (thread_index() == 0) args.counts[expert] = sum.total;
}

TS_DEVICE_INLINE int32_t tiles_of(int32_t count) { return (count + kNarrowTokens - 1) / kNarrowTokens; }

// A block has one expert; a thread has consecutive pairs. The last block marks the tiles after those of all experts as empty.
TS_KERNEL(place_pairs, PlaceArgs) {
  const int32_t expert = static_cast<int32_t>(block_index()), thread = thread_index();
  int32_t tiles = 0;
  for (int32_t other = thread; other < expert; other += kPlaceThreads) tiles += tiles_of(args.counts[other]);
  const int32_t first_tile = BlockSum(tiles).total, own_tiles = tiles_of(args.counts[expert]);
  const int32_t each = (args.pairs + kPlaceThreads - 1) / kPlaceThreads, from = thread * each;
  const int32_t to = from + each < args.pairs ? from + each : args.pairs;
  int32_t own = 0;
  for (int32_t pair = from; pair < to; ++pair) own += args.matrices[pair] == expert;
  const BlockSum sum(own);
  int32_t place = first_tile * kNarrowTokens + sum.before;
  for (int32_t pair = from; pair < to; ++pair) {
    if (args.matrices[pair] != expert) continue;
    args.order[place] = pair;
    args.places[pair] = place++;
  }
  for (int32_t i = sum.total + thread; i < own_tiles * kNarrowTokens; i += kPlaceThreads) args.order[first_tile * kNarrowTokens + i] = -1;
  for (int32_t i = thread; i < own_tiles; i += kPlaceThreads) args.tiles[first_tile + i] = expert;
  if (expert + 1 < args.experts) return;
  for (int32_t i = first_tile + own_tiles + thread; i < args.most_tiles; i += kPlaceThreads) args.tiles[i] = -1;
  for (int32_t i = (first_tile + own_tiles) * kNarrowTokens + thread; i < args.most_tiles * kNarrowTokens; i += kPlaceThreads) args.order[i] = -1;
}

}  // namespace cuda
}  // namespace twostroke
