// The partial result of a row and a query head over one segment, in scratch memory: 16 totals, the sums of value_dim dimensions, and the
// peak.
#pragma once
#include "twostroke/cuda/attention/rows.h"

namespace twostroke {
namespace cuda {

static_assert(kRowTotals == kLanes, "a total for each lane");

// number: the number of the row's tile in this launch; index: the number of the segment among those that the row sees.
TS_DEVICE_INLINE float* partial_of(const AttentionArgs& args, int32_t number, int32_t row, int32_t head, int32_t index) {
  const int64_t before = ((static_cast<int64_t>(number) * args.together + row) * args.heads + head) * args.segments + index;
  return args.partials + before * partial_floats(args.layer.value_dim);
}

// Where a column's result of one segment goes. It goes to the row's output where the row sees no other segment (whole), else to a partial
// result, or nowhere.
struct Result {
  bool any, whole;
  float* sums;  // the sums of value_dim dimensions
  float* partial;  // NULL where the result goes to the output

  TS_MEMBER_INLINE Result(const AttentionArgs& args, const SegmentBlock& block, int32_t column) : any(false), whole(false), sums(nullptr), partial(nullptr) {
    if (column >= block.columns) return;
    const int32_t row = block.row(column), head = block.head(column);
    const Seen seen = block.seen(args, row);
    any = seen.begin < (block.segment + 1) * kSegment && seen.end > block.segment * kSegment;
    whole = seen.segments() == 1;
    if (whole) {
      sums = args.out + static_cast<int64_t>(block.tile.first + row) * args.out_stride + static_cast<int64_t>(head) * args.layer.value_dim;
    } else if (any) {
      partial = partial_of(args, block.number, row, head, block.segment - seen.first_segment());
      sums = partial + kLanes;
    }
  }
};

}  // namespace cuda
}  // namespace twostroke
