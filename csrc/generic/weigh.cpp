// ts_weigh: a row of logits as whole-number weights (src/twostroke/ops/token_weights.py): the same bits at every level.
// Only +, -, * on doubles, never fused, so that it does not matter how many lanes there are or which library has exp.
// Knows: one row of logits. Must not know: how a token is chosen.
#include <string.h>

#include "twostroke/abi.h"

namespace twostroke {
namespace {

constexpr double kLeastExponent = -60.0;       // and everything below: weight 0
constexpr double kToWhole = 6755399441055744.0;  // 1.5 * 2^52: adding and subtracting it rounds to a whole number, half to even
constexpr double kWholeBits = 4503599627370496.0;  // 2^52: a number added to it stands in the low bits
constexpr uint64_t kWeightBits = 44;
constexpr int kTerms = 13;

}  // namespace
}  // namespace twostroke

int32_t ts_weigh(const float* logits, int64_t count, double peak, double scale, const double* coefficients, int32_t terms, uint64_t* out) {
  using namespace twostroke;
  if (logits == nullptr || coefficients == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (count < 1 || terms != kTerms) return TS_BAD_SHAPE;
  double series[kTerms];
  memcpy(series, coefficients, sizeof series);
  for (int64_t i = 0; i < count; ++i) {
    double exponent = (static_cast<double>(logits[i]) - peak) * scale;
    exponent = exponent > kLeastExponent ? exponent : kLeastExponent;
    const double shifted = exponent + kToWhole;
    const double rest = exponent - (shifted - kToWhole);
    double power = series[kTerms - 1];
    for (int term = kTerms - 2; term >= 0; --term) power = power * rest + series[term];
    // The low bits of `shifted` are the whole part of the exponent; moved up they are that of a double.
    uint64_t whole, bits;
    memcpy(&whole, &shifted, sizeof whole);
    memcpy(&bits, &power, sizeof bits);
    bits += (whole + kWeightBits) << 52;
    double weight;
    memcpy(&weight, &bits, sizeof weight);
    weight += kWholeBits;
    memcpy(&bits, &weight, sizeof bits);
    out[i] = bits & ((uint64_t{1} << 52) - 1);
  }
  return TS_OK;
}
