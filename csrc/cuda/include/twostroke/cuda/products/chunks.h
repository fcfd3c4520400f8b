// Chunks of a matrix of whole numbers, and the order in which a block goes through the strips of a matrix. A chunk is at most 128 columns
// of one group, which a warp computes at once. Sums of chunks are whole numbers, so those of a group may be added in any order.
#pragma once
#include "twostroke/cuda/products/products.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kChunkSteps = 2;  // steps of 64 columns

// Whether every group is one whole chunk, as in groups of 128.
TS_DEVICE_INLINE bool has_whole_chunks(const LinearArgs& args) {
  return args.group == kChunkSteps * kStep && args.padded % args.group == 0;
}

// One matrix of int8 or int4. kWhole: has_whole_chunks is true, so the code needs no check of a chunk.
template <bool kWhole>
struct ChunkedMatrix {
  const uint8_t* data;
  const uint16_t* scales;
  int64_t panel_bytes;
  int32_t groups, group_steps, steps, group_chunks, chunks;

  TS_MEMBER_INLINE ChunkedMatrix(const LinearArgs& args, int64_t matrix)
      : data(panel_of(args, matrix, 0)), scales(args.scales + matrix * args.panels * args.groups * kPanel), panel_bytes(args.panel_bytes),
        groups(static_cast<int32_t>(args.groups)), group_steps(static_cast<int32_t>(args.group / kStep)),
        steps(static_cast<int32_t>(args.padded / kStep)), group_chunks((group_steps + kChunkSteps - 1) / kChunkSteps),
        chunks(0) {
    const int32_t last = steps - (groups - 1) * group_steps;  // the steps of the last group
    chunks = (groups - 1) * group_chunks + (last + kChunkSteps - 1) / kChunkSteps;
  }
  TS_MEMBER_INLINE int32_t group_of(int32_t chunk) const { return kWhole ? chunk : chunk / group_chunks; }
  TS_MEMBER_INLINE bool ends_group(int32_t chunk) const {
    return kWhole || chunk % group_chunks == group_chunks - 1 || chunk == chunks - 1;
  }
  // The chunk's first step, and the step after its last.
  TS_MEMBER_INLINE int32_t first_step(int32_t chunk) const {
    if (kWhole) return chunk * kChunkSteps;
    return chunk / group_chunks * group_steps + chunk % group_chunks * kChunkSteps;
  }
  TS_MEMBER_INLINE int32_t end_step(int32_t chunk, int32_t first) const {
    if (kWhole) return first + kChunkSteps;
    const int32_t group_end = (group_of(chunk) + 1) * group_steps, end = first + kChunkSteps < group_end ? first + kChunkSteps : group_end;
    return end < steps ? end : steps;
  }
};

// The current place of a block: some chunks of a strip, from `span` on. For a gated product the block computes the gate's strip first, then
// the strip that is gated.
struct StripPlace {
  int64_t unit;
  int32_t half, span;

  // chunks: the chunks of a row; spans: the number of steps through them, because several chunks are computed at once.
  TS_MEMBER_INLINE void next(const LinearArgs& args, int32_t chunks, int32_t spans) {
    span += spans;
    if (span < chunks) return;
    span = 0;
    half = args.gated != 0 ? 1 - half : 0;
    if (half == 0) unit += args.parts;
  }
  // The matrix row at which its strip begins.
  TS_MEMBER_INLINE int64_t row(const LinearArgs& args, int64_t strip) const { return unit * strip + half * (args.rows / 2); }
};

// The strips of a matrix, or of half of it where they gate the other half.
TS_DEVICE_INLINE int64_t strips_of(const LinearArgs& args, int64_t strip) {
  return ((args.gated != 0 ? args.rows / 2 : args.rows) + strip - 1) / strip;
}

// Finishes the sum of a row, which has the number `own` in its half. gate: keeps the gate until the value that it multiplies is computed.
TS_DEVICE_INLINE void finish_half(const LinearArgs& args, int64_t matrix, int64_t token, int64_t own, int32_t half, float sum, float& gate) {
  if (args.gated == 0) {
    if (own < args.rows) finish(args, matrix, token, own, sum);
    return;
  }
  if (own >= args.rows / 2) return;
  const float biased = args.bias == nullptr ? sum : sum + args.bias[matrix * args.rows + half * (args.rows / 2) + own];
  if (half == 0) gate = biased;
  else args.out[token * args.out_stride + own] = activated(0, gate) * biased;
}

}  // namespace cuda
}  // namespace twostroke
