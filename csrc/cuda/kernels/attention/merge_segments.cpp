// attention_merge: merges the partial results of a row and a query head that sees several segments, in the order of the segments. A thread
// has one element: one of 16 totals or of value_dim sums.
#include "twostroke/cuda/attention/partials.h"

namespace twostroke {
namespace cuda {

constexpr int kMergedAtOnce = 8;  // segments whose results are loaded before any of them is used

TS_SHARED(float, merged_totals, kLanes);

// The factors of 32 segments; each thread of the warp has those of one. The merged result so far is multiplied by keep, the segment by add.
struct MergeFactors {
  float keep, add, peak;  // peak: the peak of this segment and all before it

  TS_MEMBER_INLINE MergeFactors(float own, float before_all) : keep(0.0f), add(0.0f), peak(own) {
    const int32_t lane = warp_lane();
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const float other = float_of(shuffle(bits_of(peak), lane >= distance ? lane - distance : lane));
      peak = larger(peak, other);
    }
    peak = larger(peak, before_all);
    const float previous = float_of(shuffle(bits_of(peak), lane > 0 ? lane - 1 : 0)), before = lane > 0 ? previous : before_all;
    keep = exp2_negative(before - peak);
    add = exp2_negative(own - peak);
  }
};

// A block has one row and one query head. Its threads are whole warps, with at least one thread for each element.
TS_KERNEL(attention_merge, AttentionArgs) {
  const int32_t heads = static_cast<int32_t>(args.heads), index = static_cast<int32_t>(block_index()), head = index % heads;
  const int32_t row = index / heads % args.together, number = index / heads / args.together, element = thread_index(), lane = warp_lane();
  const RowTile tile = row_tile(args, static_cast<int32_t>(args.first_tile) + number);
  if (row >= tile.rows) return;
  const int32_t count = tile.seen(args, row).segments();
  const int64_t floats = partial_floats(args.layer.value_dim);
  if (count <= 1) return;
  const bool there = element < floats - 1;
  const int32_t own_element = there ? element : 0;
  const float* partial = partial_of(args, number, row, head, 0);
  float peak = kLowest, merged = 0.0f;
  for (int32_t first = 0; first < count; first += kWarp) {
    const int32_t some = count - first < kWarp ? count - first : kWarp;
    const MergeFactors own(lane < some ? partial[(first + lane + 1) * floats - 1] : kLowest, peak);
    for (int32_t from = 0; from < some; from += kMergedAtOnce) {
      float parts[kMergedAtOnce];
      TS_EVERY_LANE
      for (int i = 0; i < kMergedAtOnce; ++i) {
        parts[i] = partial[(first + (from + i < some ? from + i : some - 1)) * floats + own_element];
      }
      TS_EVERY_LANE
      for (int i = 0; i < kMergedAtOnce; ++i) {
        const float keep = float_of(shuffle(bits_of(own.keep), from + i)), add = float_of(shuffle(bits_of(own.add), from + i));
        if (from + i < some) merged = fma(parts[i], add, merged * keep);
      }
    }
    peak = float_of(shuffle(bits_of(own.peak), kWarp - 1));
  }
  if (element < kLanes) merged_totals[element] = merged;
  barrier();
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = merged_totals[i];
  const float inverse = inverse_of(args, head, peak, sum_tree(lanes));
  float* out = args.out + static_cast<int64_t>(tile.first + row) * args.out_stride + static_cast<int64_t>(head) * args.layer.value_dim;
  if (there && element >= kLanes) out[element - kLanes] = merged * inverse;
}

}  // namespace cuda
}  // namespace twostroke
