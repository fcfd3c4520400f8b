// low_rank: what adapters add to a product. low_rank_down: sums over inputs in 16 lanes and then over the lanes; low_rank_up: over ranks one
// after the other.
// Knows: packed panels. Must not know: which adapters there are.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int64_t kRankStep = 8;  // what banks are padded to

// Element (row, column) of a packed panel, without its column's scale.
TS_DEVICE_INLINE float float_at(const uint8_t* panel, int32_t kind, int64_t lane, int64_t column) {
  if (kind == TS_W_INT8) return static_cast<float>(reinterpret_cast<const int8_t*>(panel)[column * kPanel + lane]);
  if (kind == TS_W_F32) return reinterpret_cast<const float*>(panel)[column * kPanel + lane];
  return widen(reinterpret_cast<const uint16_t*>(panel)[(column / 2 * kPanel + lane) * 2 + column % 2]);
}

// Ranks of a row's adapter, whole steps; 0 where it has none.
TS_DEVICE_INLINE int64_t ranks_of(const LowRankArgs& args, int64_t row) {
  const int32_t adapter = args.adapters[row];
  if (adapter < 0) return 0;
  const int64_t ranks = (static_cast<int64_t>(args.ranks[adapter]) + kRankStep - 1) / kRankStep * kRankStep;
  return ranks < args.most_ranks ? ranks : args.most_ranks;
}

TS_DEVICE_INLINE const uint8_t* bank_of(const LowRankArgs& args, int64_t row) {
  return args.data + args.adapters[row] * args.panels * args.panel_bytes;
}

TS_DEVICE_INLINE float scale_at(const uint16_t* scales, int64_t at) { return scales == nullptr ? 1.0f : widen(scales[at]); }

// A thread a rank of a row. Lanes behind the last input are zeros, as on the CPU.
TS_KERNEL(low_rank_down, LowRankArgs) {
  const int64_t row = block_index() / args.parts, rank = block_index() % args.parts * threads() + thread_index();
  if (rank >= ranks_of(args, row)) return;
  const float* x = args.x + row * args.x_stride;
  const uint8_t* bank = bank_of(args, row);
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = 0.0f;
  for (int64_t first = 0; first < args.panels * kPanel; first += kLanes) {
    const uint8_t* panel = bank + first / kPanel * args.panel_bytes;
    TS_EVERY_LANE
    for (int i = 0; i < kLanes; ++i) {
      const float input = first + i < args.width ? x[first + i] : 0.0f;
      lanes[i] = fma(input, float_at(panel, args.kind, first % kPanel + i, rank), lanes[i]);
    }
  }
  const int64_t column = args.adapters[row] * args.most_ranks + rank;
  const float scale = scale_at(args.down_scales, column) * scale_at(args.up_scales, column);
  args.middle[row * args.middle_stride + rank] = sum_tree(lanes) * scale;
}

// A thread an element of a row.
TS_KERNEL(low_rank_up, LowRankArgs) {
  const int64_t row = block_index() / args.parts, at = block_index() % args.parts * threads() + thread_index();
  const int64_t ranks = ranks_of(args, row);
  if (at >= args.width || ranks == 0) return;
  const uint8_t* panel = bank_of(args, row) + at / kPanel * args.panel_bytes;
  const float* middle = args.middle + row * args.middle_stride;
  float sum = 0.0f;
  for (int64_t rank = 0; rank < ranks; ++rank) sum = fma(float_at(panel, args.kind, at % kPanel, rank), middle[rank], sum);
  args.out[row * args.out_stride + at] += sum;
}

}  // namespace cuda
}  // namespace twostroke
