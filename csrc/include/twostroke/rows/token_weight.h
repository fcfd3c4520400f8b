// The weight of a token, which is a whole number (src/twostroke/ops/attention/token_weights.py). This is one definition for the CPU and for
// devices. It uses only +, -, * on doubles, each rounded once and never fused, so that every machine gets the same bits.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr double kLeastExponent = -60.0;  // at this exponent and below, the weight is 0
constexpr double kToWhole = 6755399441055744.0;  // 1.5 * 2^52; adding and subtracting it rounds to a whole number, half to even
constexpr double kWholeBits = 4503599627370496.0;  // 2^52; a number that is added to it is in the low bits
constexpr uint64_t kWeightBits = 44;  // bits of the likeliest token's weight
constexpr int kSeriesTerms = 13;  // terms of the series of 2^x
constexpr int kShareBits = 53;  // bits of a draw, and of a share of a sum

static inline __attribute__((always_inline)) uint64_t token_weight(float logit, double peak, double scale, const double* series) {
  double exponent = (static_cast<double>(logit) - peak) * scale;
  exponent = exponent > kLeastExponent ? exponent : kLeastExponent;
  const double shifted = exponent + kToWhole;
  const double rest = exponent - (shifted - kToWhole);
  double power = series[kSeriesTerms - 1];
  for (int term = kSeriesTerms - 2; term >= 0; --term) power = power * rest + series[term];
  // The low bits of `shifted` are the whole part of the exponent. Shifted left, they are added to the exponent of a double.
  const uint64_t bits = __builtin_bit_cast(uint64_t, power) + ((__builtin_bit_cast(uint64_t, shifted) + kWeightBits) << 52);
  return __builtin_bit_cast(uint64_t, __builtin_bit_cast(double, bits) + kWholeBits) & ((uint64_t{1} << 52) - 1);
}

// part / 2^53 of a sum of weights, rounded down or up. part is at most 2^53.
static inline __attribute__((always_inline)) uint64_t share_down(uint64_t part, uint64_t total) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(part) * total >> kShareBits);
}

static inline __attribute__((always_inline)) uint64_t share_up(uint64_t part, uint64_t total) {
  const unsigned __int128 below_one = (uint64_t{1} << kShareBits) - 1;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(part) * total + below_one) >> kShareBits);
}

}  // namespace twostroke
