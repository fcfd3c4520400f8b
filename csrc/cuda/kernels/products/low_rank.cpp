// low_rank: the products that adapters add to a product. low_rank_down sums over inputs, in 16 lanes and then over the lanes. low_rank_up
// sums over ranks one after the other.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kRankStep = 8;  // banks are padded to multiples of this

// Elements (row, column) and (row, column + 1) of a packed panel, without their columns' scales. column is even.
struct TwoFloats {
  float first, second;
};
TS_DEVICE_INLINE TwoFloats two_at(const uint8_t* panel, int32_t kind, int32_t lane, int32_t column) {
  if (kind == TS_W_INT8) {
    const int8_t* bytes = reinterpret_cast<const int8_t*>(panel) + column * kPanel + lane;
    return {static_cast<float>(bytes[0]), static_cast<float>(bytes[kPanel])};
  }
  if (kind == TS_W_F32) {
    const float* floats = reinterpret_cast<const float*>(panel) + column * kPanel + lane;
    return {floats[0], floats[kPanel]};
  }
  const uint32_t word = reinterpret_cast<const uint32_t*>(panel)[column / 2 * kPanel + lane];
  return {float_of(word << 16), float_of(word & 0xffff0000u)};
}

// The ranks of a row's adapter, rounded up to whole steps; 0 where it has none.
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

constexpr int32_t kAhead = 8;  // loads of a thread that are under way together

// Sixteen threads have two ranks of a row. A thread is a lane, because the lanes' inputs lie next to each other. Lanes after the last input
// are zeros, as on the CPU.
TS_KERNEL(low_rank_down, LowRankArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), row = block / static_cast<uint32_t>(args.parts);
  const int32_t part = static_cast<int32_t>(block - row * static_cast<uint32_t>(args.parts)), lane = thread_index() % kLanes;
  const int32_t rank = (part * threads() + thread_index()) / kLanes * 2, ranks = static_cast<int32_t>(ranks_of(args, row));
  const int32_t width = static_cast<int32_t>(args.width), end = rank < ranks ? static_cast<int32_t>(args.panels * kPanel) : 0;
  const float* x = args.x + row * args.x_stride;
  const uint8_t* bank = ranks == 0 ? args.data : bank_of(args, row);
  float first_sum = 0.0f, second_sum = 0.0f;
  for (int32_t first = lane; first < end; first += kAhead * kLanes) {
    float inputs[kAhead];
    TwoFloats weights[kAhead];
    TS_EVERY_LANE
    for (int32_t j = 0; j < kAhead; ++j) {
      const int32_t at = first + j * kLanes;
      inputs[j] = at < width ? x[at] : 0.0f;
      if (at < end) weights[j] = two_at(bank + at / kPanel * args.panel_bytes, args.kind, at % kPanel, rank);
    }
    TS_EVERY_LANE
    for (int32_t j = 0; j < kAhead; ++j) {
      if (first + j * kLanes >= end) continue;
      first_sum = fma(inputs[j], weights[j].first, first_sum);
      second_sum = fma(inputs[j], weights[j].second, second_sum);
    }
  }
  first_sum = sum_of_half_warp(first_sum);
  second_sum = sum_of_half_warp(second_sum);
  if (lane != 0 || rank >= ranks) return;
  const int64_t column = args.adapters[row] * args.most_ranks + rank;
  float* middle = args.middle + row * args.middle_stride + rank;
  middle[0] = first_sum * (scale_at(args.down_scales, column) * scale_at(args.up_scales, column));
  middle[1] = second_sum * (scale_at(args.down_scales, column + 1) * scale_at(args.up_scales, column + 1));
}

// A thread has one element of a row.
TS_KERNEL(low_rank_up, LowRankArgs) {
  const uint32_t block = static_cast<uint32_t>(block_index()), row = block / static_cast<uint32_t>(args.parts);
  const int32_t at = static_cast<int32_t>(block - row * static_cast<uint32_t>(args.parts)) * threads() + thread_index();
  const int32_t ranks = static_cast<int32_t>(ranks_of(args, row));
  if (at >= args.width || ranks == 0) return;
  const uint8_t* panel = bank_of(args, row) + at / kPanel * args.panel_bytes;
  const float* middle = args.middle + row * args.middle_stride;
  float sum = 0.0f;
  for (int32_t rank = 0; rank < ranks; rank += kRankStep) {
    TwoFloats weights[kRankStep / 2];
    float inputs[kRankStep];
    TS_EVERY_LANE
    for (int32_t j = 0; j < kRankStep / 2; ++j) weights[j] = two_at(panel, args.kind, at % kPanel, rank + 2 * j);
    TS_EVERY_LANE
    for (int32_t j = 0; j < kRankStep; ++j) inputs[j] = middle[rank + j];
    TS_EVERY_LANE
    for (int32_t j = 0; j < kRankStep / 2; ++j) sum = fma(weights[j].second, inputs[2 * j + 1], fma(weights[j].first, inputs[2 * j], sum));
  }
  args.out[row * args.out_stride + at] += sum;
}

}  // namespace cuda
}  // namespace twostroke
