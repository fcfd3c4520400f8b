// linear and its kin: rows of activations rounded to int8 by group, then products of whole numbers (int8, int4 weights) folded in the
// order of the groups; or fused float32 products in the order of k (f32, bf16 weights). The bits are those of the CPU's vector levels.
// Knows: packed panels. Must not know: gates, who asked.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"
#include "twostroke/cuda/packed.h"

namespace twostroke {
namespace cuda {

TS_SHARED(uint32_t, group_bits, kGroupThreads);
TS_SHARED(int32_t, group_sums, kGroupThreads);
TS_SHARED(int32_t, integers, kProductRows * kProductThreads);  // (groups at once, rows, columns of the panel)

constexpr float kLeastMagnitude = 0x1p-120f, kMostMagnitude = 0x1.fffffep127f;

// A block one group of one row. Which thread has what is of no account: a maximum and a sum of whole numbers are exact.
TS_KERNEL(quantize, QuantizeArgs) {
  const int64_t row = block_index() / args.groups, group = block_index() % args.groups, first = group * args.group;
  const int64_t end = first + args.group < args.padded ? first + args.group : args.padded;
  const float* x = args.x + row * args.x_stride;
  const int32_t thread = thread_index();
  uint32_t most = 0;
  for (int64_t k = first + thread; k < end && k < args.columns; k += threads()) {
    const uint32_t bits = bits_of(x[k]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  group_bits[thread] = most;
  barrier();
  for (int i = 0; i < kGroupThreads; ++i) {
    const uint32_t bits = group_bits[i];
    most = bits > most ? bits : most;
  }
  const float largest = float_of(most);
  const bool usable = largest >= kLeastMagnitude && largest <= kMostMagnitude;
  const float inverse = usable ? 127.0f / largest : 0.0f;
  int32_t sum = 0;
  for (int64_t k = first + thread; k < end; k += threads()) {
    const float scaled = usable && k < args.columns ? x[k] * inverse : 0.0f;
    const int8_t q = static_cast<int8_t>(static_cast<int32_t>(bits_of(scaled + kRounder) - 0x4b400000u));
    args.q[row * args.padded + k] = q;
    sum += q;
  }
  group_sums[thread] = sum;
  barrier();
  if (thread != 0) return;
  int32_t total = 0;
  for (int i = 0; i < kGroupThreads; ++i) total += group_sums[i];
  args.scales[row * args.groups + group] = largest / 127.0f;
  args.corrections[row * args.groups + group] = -128 * total;
}

// x_q: the four k of each row of the block.
TS_DEVICE_INLINE void dot_rows(uint32_t weights, const int8_t* x_q, int64_t stride, int32_t (&sums)[kProductRows]) {
  for (int r = 0; r < kProductRows; ++r)
    sums[r] = dot4(weights, *reinterpret_cast<const int32_t*>(x_q + r * stride), sums[r]);
}

TS_DEVICE_INLINE void int8_group(const uint8_t* panel, int64_t column, int64_t first, int64_t end, const int8_t* x_q, int64_t stride,
                                 int32_t (&sums)[kProductRows]) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + column;
  for (int64_t k = first; k < end; k += 4) dot_rows(words[k / 4 * kPanel], x_q + k, stride, sums);
}

// element * multiplier + 128 of four elements at once: no product exceeds 225, no sum 233, so nothing carries from byte to byte.
TS_DEVICE_INLINE uint32_t unpacked(uint32_t nibbles, uint32_t multiplier) {
  return nibbles * multiplier + (128 - 8 * multiplier) * 0x01010101u;
}

TS_DEVICE_INLINE void int4_group(const uint8_t* panel, int64_t column, int64_t first, int64_t end, const int8_t* x_q, int64_t stride,
                                 int32_t (&sums)[kProductRows]) {
  for (int64_t k = first; k < end; k += kStep) {
    const uint8_t* step = panel + k / kStep * kInt4StepBytes;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(step + kMultiplierBytes) + column;
    for (int oct = 0; oct < 8; ++oct) {
      const uint32_t pair = step[oct / 4 * kPanel + column], multiplier = oct / 2 % 2 == 0 ? pair & 15 : pair >> 4;
      const uint32_t word = words[oct * kPanel];
      dot_rows(unpacked(word & 0x0f0f0f0fu, multiplier), x_q + k + 8 * oct, stride, sums);
      dot_rows(unpacked(word >> 4 & 0x0f0f0f0fu, multiplier), x_q + k + 8 * oct + 4, stride, sums);
    }
  }
}

TS_DEVICE_INLINE void finish(const LinearArgs& args, int64_t token, int64_t row, float sum) {
  const float biased = args.bias == nullptr ? sum : sum + args.bias[row];
  float* out = args.out + token * args.out_stride + row;
  *out = args.add != 0 ? *out + biased : biased;
}

// A block four rows of x by one panel. For products, a thread has a column and one of four groups; for folding, a column and a row. q has
// whole blocks of rows: what no row fills is computed and not stored.
TS_KERNEL(linear_whole, LinearArgs) {
  const int64_t panel = block_index() % args.panels, first_token = block_index() / args.panels * kProductRows;
  const int64_t column = thread_index() % kPanel, own = thread_index() / kPanel;
  const uint8_t* weights = args.data + panel * panel_bytes(args.kind, args.padded);
  const uint16_t* scales = args.scales + panel * args.groups * kPanel + column;
  const int8_t* x_q = args.q + first_token * args.padded;
  const int64_t token = first_token + own;
  float sum = 0.0f;
  for (int64_t from = 0; from < args.groups; from += kProductRows) {
    const int64_t group = from + own, first = group * args.group;
    if (group < args.groups) {
      const int64_t end = first + args.group < args.padded ? first + args.group : args.padded;
      int32_t sums[kProductRows];
      for (int r = 0; r < kProductRows; ++r) sums[r] = args.corrections[(first_token + r) * args.groups + group];
      if (args.kind == TS_W_INT8) int8_group(weights, column, first, end, x_q, args.padded, sums);
      else int4_group(weights, column, first, end, x_q, args.padded, sums);
      for (int r = 0; r < kProductRows; ++r) integers[(own * kProductRows + r) * kPanel + column] = sums[r];
    }
    barrier();
    for (int64_t i = 0; i < kProductRows && from + i < args.groups; ++i) {
      const int32_t whole = integers[(i * kProductRows + own) * kPanel + column];
      const float scale = args.x_scales[token * args.groups + from + i] * widen(scales[(from + i) * kPanel]);
      sum = fma(static_cast<float>(whole), scale, sum);
    }
    barrier();
  }
  const int64_t row = panel * kPanel + column;
  if (token < args.tokens && row < args.rows) finish(args, token, row, sum);
}

// A block one row of x by four panels: a thread a column.
TS_KERNEL(linear_float, LinearArgs) {
  const int64_t each = kProductThreads / kPanel, parts = (args.panels + each - 1) / each;
  const int64_t token = block_index() / parts, row = block_index() % parts * kProductThreads + thread_index();
  if (row >= args.rows) return;
  const uint8_t* panel = args.data + row / kPanel * panel_bytes(args.kind, args.padded);
  const float* x = args.x + token * args.x_stride;
  const int64_t lane = row % kPanel;
  float sum = 0.0f;
  if (args.kind == TS_W_F32) {
    for (int64_t k = 0; k < args.columns; ++k) sum = fma(x[k], reinterpret_cast<const float*>(panel)[k * kPanel + lane], sum);
  } else {
    const uint16_t* pairs = reinterpret_cast<const uint16_t*>(panel) + lane * 2;
    for (int64_t k = 0; k < args.columns; ++k) sum = fma(x[k], widen(pairs[k / 2 * kPanel * 2 + k % 2]), sum);
  }
  finish(args, token, row, sum);
}

}  // namespace cuda
}  // namespace twostroke
