// linear and its kin: rows of activations rounded to int8 by group, then products of whole numbers (int8, int4 weights) folded in the
// order of the groups. The bits are those of the CPU's vector levels.
// Knows: packed panels. Must not know: gates, what asked.
#include "twostroke/cuda/products.h"

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

// A block four rows of x by one panel. For products, a thread has a column and one of four groups; for folding, a column and a row. q has
// whole blocks of rows: what no row fills is computed and not stored.
TS_KERNEL(linear_whole, LinearArgs) {
  const int64_t panel = block_index() % args.panels, first_token = block_index() / args.panels * kProductRows;
  const int64_t column = thread_index() % kPanel, own = thread_index() / kPanel;
  const uint8_t* weights = args.data + panel * args.panel_bytes;
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
      if (args.kind == TS_W_INT8) int8_group<kProductRows>(weights, column, first, end, x_q, args.padded, sums);
      else int4_group<kProductRows>(weights, column, first, end, x_q, args.padded, sums);
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
  if (token < args.tokens && row < args.rows) finish(args, 0, token, row, sum);
}

// The same for rows of which each meets its own matrix of a bank: a block one row of x by one panel.
TS_KERNEL(linear_whole_bank, LinearArgs) {
  const int64_t panel = block_index() % args.panels, token = block_index() / args.panels, matrix = matrix_of(args, token);
  const int64_t column = thread_index() % kPanel, own = thread_index() / kPanel, row = panel * kPanel + column;
  const uint8_t* weights = panel_of(args, matrix, panel * kPanel);
  const uint16_t* scales = args.scales + (matrix * args.panels + panel) * args.groups * kPanel + column;
  const int8_t* x_q = args.q + token * args.padded;
  float sum = 0.0f;
  for (int64_t from = 0; from < args.groups; from += kProductRows) {
    const int64_t group = from + own, first = group * args.group;
    if (group < args.groups) {
      const int64_t end = first + args.group < args.padded ? first + args.group : args.padded;
      int32_t sums[1] = {args.corrections[token * args.groups + group]};
      if (args.kind == TS_W_INT8) int8_group<1>(weights, column, first, end, x_q, 0, sums);
      else int4_group<1>(weights, column, first, end, x_q, 0, sums);
      integers[own * kPanel + column] = sums[0];
    }
    barrier();
    for (int64_t i = 0; own == 0 && i < kProductRows && from + i < args.groups; ++i) {
      const float scale = args.x_scales[token * args.groups + from + i] * widen(scales[(from + i) * kPanel]);
      sum = fma(static_cast<float>(integers[i * kPanel + column]), scale, sum);
    }
    barrier();
  }
  if (own == 0 && row < args.rows) finish(args, matrix, token, row, sum);
}

}  // namespace cuda
}  // namespace twostroke
