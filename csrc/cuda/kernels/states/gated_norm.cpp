// gated_norm: a block has one group of a row. The sum of squares is sixteen partial sums and then one fixed tree.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

// out may be x or gate. One thread reads and writes an element, or a barrier lies between the two.
TS_KERNEL(gated_norm, ts_gated_norm_args) {
  const uint32_t groups = static_cast<uint32_t>(args.groups), block = static_cast<uint32_t>(block_index());
  const uint32_t width = static_cast<uint32_t>(width_of(args.out)), inside = width / groups;
  const int64_t row = block / groups, group = block % groups, first = group * inside;
  const float *x = args.x.data + row * args.x.stride + first, *gate = args.gate.data + row * args.gate.stride + first;
  const float* weight = args.weight.data + (args.weight.length == inside ? 0 : first);
  float* out = args.out.data + row * args.out.stride + first;
  const auto normed = [&](int32_t i) { return args.gate_first != 0 ? x[i] * activated(args.activation, gate[i]) : x[i]; };
  const int32_t count = static_cast<int32_t>(inside);
  const float squares = sum_by_lanes(count, normed, AddSquare());
  const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + static_cast<float>(args.eps));
  const bool held = count <= kLanePiece;
  for (int32_t i = thread_index(); i < count; i += threads()) {
    const float scaled = (held ? static_cast<float>(lane_row[i]) : normed(i)) * scale * weight[i];
    out[i] = args.gate_first != 0 ? scaled : scaled * activated(args.activation, gate[i]);
  }
}

}  // namespace cuda
}  // namespace twostroke
