// embed: rows of a packed table as float32. A thread has four elements. src/twostroke/ops/operands.py defines the layouts.
#include "twostroke/cuda/machine/fours.h"
#include "twostroke/cuda/products/rotate_four.h"
#include "twostroke/cuda/products/stored.h"

namespace twostroke {
namespace cuda {

// Four columns of one row, from k on, which is a multiple of 4. The caller uses the first `count` of them.
TS_DEVICE_INLINE Four floats_at(const EmbedArgs& args, const uint8_t* panel, int64_t lane, int64_t k, int32_t count) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + lane;
  Four found;
  if (args.kind == TS_W_F32) {
    TS_EACH_OF_FOUR found.v[i] = i < count ? float_of(words[(k + i) * kPanel]) : 0.0f;
    return found;
  }
  const uint32_t first = words[k / 2 * kPanel], second = count > 2 ? words[(k / 2 + 1) * kPanel] : 0;
  TS_EACH_OF_FOUR {
    const uint32_t word = i < 2 ? first : second;
    found.v[i] = float_of(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  return found;
}

TS_DEVICE_INLINE Four whole_at(const EmbedArgs& args, const uint8_t* panel, int64_t index, int64_t lane, int64_t k) {
  const uint32_t group = static_cast<uint32_t>(k) / static_cast<uint32_t>(args.group);
  const int64_t groups = (args.padded + args.group - 1) / args.group;
  const float scale = widen(args.scales[(index * groups + group) * kPanel + lane]);
  uint32_t four;
  int32_t multiplier = 1, offset = 128;
  if (args.kind == TS_W_INT8) {
    four = reinterpret_cast<const uint32_t*>(panel)[k / 4 * kPanel + lane];
  } else {
    const uint8_t* step = panel + k / kStep * kInt4StepBytes;
    const int64_t at = k % kStep;
    const uint8_t pair = step[at / (2 * kSubgroup) * kPanel + lane];
    const uint32_t word = reinterpret_cast<const uint32_t*>(step + kMultiplierBytes)[at / 8 * kPanel + lane];
    multiplier = at % (2 * kSubgroup) < kSubgroup ? pair & 15 : pair >> 4;
    four = (at % 8 < 4 ? word : word >> 4) & 0x0f0f0f0fu;
    offset = 8;
  }
  Four found;
  TS_EACH_OF_FOUR found.v[i] = static_cast<float>((static_cast<int32_t>(four >> (8 * i) & 0xff) - offset) * multiplier) * scale;
  return found;
}

TS_DEVICE_INLINE Four stored_at(const EmbedArgs& args, const uint8_t* panel, int64_t lane, int64_t k) {
  const int64_t first = k / kStoredGroup * kStoredGroup, rest = args.padded - first, at = k - first;
  const StoredRow row(args.stored, panel + first / kStoredGroup * args.stored.group_bytes, rest < kStoredGroup ? rest : kStoredGroup, lane);
  const uint32_t codes = row.quad(at), step = static_cast<uint32_t>(at) / static_cast<uint32_t>(args.stored.sub);  // a step has whole fours
  const float scale = row.step(step), minimum = args.stored.minimum == 0 ? 0.0f : row.minimum(step);
  Four found;
  TS_EACH_OF_FOUR {
    const float value = static_cast<float>(static_cast<int32_t>(codes >> (8 * i) & 0xff) - args.stored.offset) * scale;
    found.v[i] = args.stored.minimum == 0 ? value : value - minimum;
  }
  return found;
}

TS_KERNEL(embed, EmbedArgs) {
  const FourPlace e = four_place(args.columns);
  if (args.rotated == 0 && e.count == 0) return;  // threads of a warp rotate together, so none may leave early
  const int32_t id = args.token_ids[e.row];
  const int64_t index = id / kPanel, lane = id % kPanel, k = e.at;
  const uint8_t* panel = args.data + index * args.panel_bytes;
  Four found;
  if (args.kind == TS_W_F32 || args.kind == TS_W_BF16) found = floats_at(args, panel, lane, k, e.count);
  else if (k >= args.padded) found = {{0.0f, 0.0f, 0.0f, 0.0f}};
  else if (args.kind >= TS_W_FLAT8) found = stored_at(args, panel, lane, k);
  else found = whole_at(args, panel, index, lane, k);
  if (args.rotated != 0) {
    const Words4 own = {bits_of(found.v[0]), bits_of(found.v[1]), bits_of(found.v[2]), bits_of(found.v[3])}, turned = rotated_four(own);
    TS_EACH_OF_FOUR found.v[i] = float_of(turned[i]);
  }
  if (e.count == 0) return;
  store_four(args.out + e.row * args.out_stride + k, found, e.count);
}

}  // namespace cuda
}  // namespace twostroke
