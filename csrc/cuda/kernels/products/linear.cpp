// linear and its kin: products of rounded rows of activations with whole numbers (int8, int4 weights), folded in the order of the groups.
// The bits are those of the CPU's vector levels.
// Knows: packed panels. Must not know: gates, what asked.
#include "twostroke/cuda/products.h"

namespace twostroke {
namespace cuda {

TS_SHARED(int32_t, integers, kProductRows * kProductThreads);  // (groups at once, rows, columns of the panel)

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

}  // namespace cuda
}  // namespace twostroke
