// Products with weights that keep a file's codes: for each step float(whole sum) * step, less minimum * float(sum of the rounded
// activations), added up from left to right within a group of 256 columns; then times the group's scale of the activations.
// Knows: packed panels. Must not know: files, what asked.
#include "twostroke/cuda/products.h"
#include "twostroke/cuda/stored.h"

namespace twostroke {
namespace cuda {

// A block one row of x by four panels: a thread a row of the matrix.
TS_KERNEL(linear_stored, LinearArgs) {
  const int64_t token = token_of(args), row = row_of(args);
  if (row >= args.rows) return;
  const int64_t matrix = matrix_of(args, token);
  const uint8_t* panel = panel_of(args, matrix, row);
  const int8_t* x_q = args.q + token * args.padded;
  float sum = 0.0f;
  for (int64_t group = 0; group < args.groups; ++group) {
    const int64_t first = group * kStoredGroup, rest = args.padded - first, columns = rest < kStoredGroup ? rest : kStoredGroup;
    const StoredRow weights(args.stored, panel + group * args.stored.group_bytes, columns, row % kPanel);
    float total = 0.0f;
    for (int64_t step = 0; step * args.stored.sub < columns; ++step) {
      int32_t whole = 0, ones = 0;
      for (int64_t k = step * args.stored.sub; k < (step + 1) * args.stored.sub; k += 4) {
        const int32_t q = *reinterpret_cast<const int32_t*>(x_q + first + k);
        whole = dot4(weights.quad(k), q, whole);
        ones = dot4(0x01010101u, q, ones);
      }
      whole -= args.stored.offset * ones;
      total = fma(static_cast<float>(whole), weights.step(step), total);
      if (args.stored.minimum != 0) total = fma(0.0f - weights.minimum(step), static_cast<float>(ones), total);
    }
    sum = fma(total, args.x_scales[token * args.groups + group], sum);
  }
  finish(args, matrix, token, row, sum);
}

}  // namespace cuda
}  // namespace twostroke
