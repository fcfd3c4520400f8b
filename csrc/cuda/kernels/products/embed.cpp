// embed: rows of a packed table as float32, a thread an element. Layouts: src/twostroke/ops/operands.py.
// Knows: packed layouts. Must not know: what the rows mean.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"
#include "twostroke/cuda/stored.h"

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE int32_t int4_at(const uint8_t* panel, int64_t lane, int64_t k) {
  const uint8_t* step = panel + k / kStep * kInt4StepBytes;
  const int64_t at = k % kStep;
  const uint8_t pair = step[at / (2 * kSubgroup) * kPanel + lane];
  const int32_t multiplier = at % (2 * kSubgroup) < kSubgroup ? pair & 15 : pair >> 4;
  const uint8_t packed = step[kMultiplierBytes + (at / 8 * kPanel + lane) * 4 + at % 4];
  return ((at % 8 < 4 ? packed & 15 : packed >> 4) - 8) * multiplier;
}

TS_DEVICE_INLINE float stored_at(const EmbedArgs& args, const uint8_t* panel, int64_t lane, int64_t k) {
  const int64_t first = k / kStoredGroup * kStoredGroup, rest = args.padded - first, at = k - first;
  const StoredRow row(args.stored, panel + first / kStoredGroup * args.stored.group_bytes, rest < kStoredGroup ? rest : kStoredGroup, lane);
  const int32_t code = static_cast<int32_t>(row.quad(at / 4 * 4) >> (at % 4 * 8) & 0xff) - args.stored.offset;
  const float value = static_cast<float>(code) * row.step(at / args.stored.sub);
  return args.stored.minimum == 0 ? value : value - row.minimum(at / args.stored.sub);
}

TS_KERNEL(embed, EmbedArgs) {
  const int64_t row = block_index() / args.parts, k = block_index() % args.parts * threads() + thread_index();
  if (k >= args.columns) return;
  const int64_t index = args.token_ids[row] / kPanel, lane = args.token_ids[row] % kPanel;
  const uint8_t* panel = args.data + index * args.panel_bytes;
  float* out = args.out + row * args.out_stride + k;
  if (args.kind == TS_W_F32) {
    *out = reinterpret_cast<const float*>(panel)[k * kPanel + lane];
  } else if (args.kind == TS_W_BF16) {
    *out = widen(reinterpret_cast<const uint16_t*>(panel)[(k / 2 * kPanel + lane) * 2 + k % 2]);
  } else if (args.kind >= TS_W_FLAT8) {
    *out = stored_at(args, panel, lane, k);
  } else {
    const int64_t groups = (args.padded + args.group - 1) / args.group;
    const int32_t q = args.kind == TS_W_INT8 ? panel[(k / 4 * kPanel + lane) * 4 + k % 4] - 128 : int4_at(panel, lane, k);
    *out = static_cast<float>(q) * widen(args.scales[(index * groups + k / args.group) * kPanel + lane]);
  }
}

}  // namespace cuda
}  // namespace twostroke
