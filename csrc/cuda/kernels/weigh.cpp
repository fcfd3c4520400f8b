// Weights of rows of logits for sampling, whole numbers: src/twostroke/ops/token_weights.py, bit for bit. row_peak finds the largest
// logit of each row, weigh makes the weights.
// Knows: rows of logits. Must not know: how a token is chosen.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, highest, kThreads);

TS_KERNEL(row_peak, WeighArgs) {
  const float* row = args.logits + block_index() * args.stride;
  const int32_t thread = thread_index();
  float most = -__builtin_inff();
  for (int64_t i = thread; i < args.count; i += threads()) most = larger(row[i], most);
  highest[thread] = most;
  barrier();
  if (thread != 0) return;
  for (int i = 0; i < kThreads; ++i) most = larger(highest[i], most);
  args.peaks[block_index()] = most;
}

constexpr double kLeastExponent = -60.0;            // and everything below: weight 0
constexpr double kToWhole = 6755399441055744.0;     // 1.5 * 2^52: adding and subtracting it rounds to a whole number
constexpr double kWholeBits = 4503599627370496.0;   // 2^52: a number added to it stands in the low bits
constexpr uint64_t kWeightBits = 44;

TS_KERNEL(weigh, WeighArgs) {
  const int64_t row = block_index() / args.parts, i = block_index() % args.parts * threads() + thread_index();
  if (i >= args.count) return;
  const double logit = args.logits[row * args.stride + i], peak = args.peaks[row];
  double exponent = (logit - peak) * args.scale;
  exponent = exponent > kLeastExponent ? exponent : kLeastExponent;
  const double shifted = exponent + kToWhole;
  const double rest = exponent - (shifted - kToWhole);
  double power = args.series[kSeriesTerms - 1];
  for (int term = kSeriesTerms - 2; term >= 0; --term) power = power * rest + args.series[term];
  const uint64_t bits = __builtin_bit_cast(uint64_t, power) + ((__builtin_bit_cast(uint64_t, shifted) + kWeightBits) << 52);
  const double weight = __builtin_bit_cast(double, bits) + kWholeBits;
  args.weights[row * args.count + i] = __builtin_bit_cast(uint64_t, weight) & ((uint64_t{1} << 52) - 1);
}

}  // namespace cuda
}  // namespace twostroke
