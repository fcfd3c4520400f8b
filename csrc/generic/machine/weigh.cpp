// ts_weigh: turns a row of logits into whole-number weights, with the same bits at every level, whatever the number of lanes. The other
// functions make sums and distances of such a row. Each element is computed by itself and all sums are of whole numbers, so nothing
// depends on the order.
#include "twostroke/rows/row_numbers.h"
#include "twostroke/rows/token_weight.h"

namespace {

using namespace twostroke;

constexpr double kFixed = 65536.0;  // exponents and distances are added as multiples of 1 / 65536
constexpr int kWeightHalf = 22, kSpreadHalf = 12;

inline uint64_t low_bits(uint64_t value, int count) { return value & ((uint64_t{1} << count) - 1); }

// A whole number from 0 to 2^51, for a double of that size.
inline uint64_t rounded(double value) { return low_bits(__builtin_bit_cast(uint64_t, value + kWholeBits), 52); }

inline double exponent_of(float logit, double peak, double scale) {
  const double exponent = (static_cast<double>(logit) - peak) * scale;
  return exponent > kLeastExponent ? exponent : kLeastExponent;
}

}  // namespace

// Processors without doubles in lanes, and builds that check each access, take the elements of this loop one by one.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
int32_t ts_weigh(const float* logits, int64_t count, double peak, double scale, const double* coefficients, int32_t terms, uint64_t* out) {
  if (logits == nullptr || coefficients == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (count < 1 || terms != kSeriesTerms) return TS_BAD_SHAPE;
  double series[kSeriesTerms];
  for (int term = 0; term < kSeriesTerms; ++term) series[term] = coefficients[term];
#pragma clang loop vectorize_width(8) interleave_count(2)
  for (int64_t i = 0; i < count; ++i) out[i] = token_weight(logits[i], peak, scale, series);
  return TS_OK;
}
#pragma clang diagnostic pop

int32_t ts_exponent_sums(const float* logits, const uint64_t* weights, int64_t count, double peak, double scale, uint64_t* sums) {
  if (logits == nullptr || weights == nullptr || sums == nullptr) return TS_BAD_POINTER;
  if (count < 1) return TS_BAD_SHAPE;
  uint64_t high = 0, low = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t fixed = rounded(exponent_of(logits[i], peak, scale) * -kFixed);
    high += (weights[i] >> kWeightHalf) * fixed;
    low += low_bits(weights[i], kWeightHalf) * fixed;
  }
  sums[0] = high;
  sums[1] = low;
  return TS_OK;
}

int32_t ts_nearness(const float* logits, int64_t count, double peak, double scale, double mean, double* out) {
  if (logits == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (count < 1) return TS_BAD_SHAPE;
  for (int64_t i = 0; i < count; ++i) out[i] = -__builtin_fabs(exponent_of(logits[i], peak, scale) - mean);
  return TS_OK;
}

int32_t ts_spread_sums(const float* logits, int64_t count, double peak, double most, uint64_t* sums) {
  if (logits == nullptr || sums == nullptr) return TS_BAD_POINTER;
  if (count < 1) return TS_BAD_SHAPE;
  uint64_t total = 0, high_high = 0, high_low = 0, low_low = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double apart = peak - static_cast<double>(logits[i]);
    const uint64_t fixed = rounded((apart < most ? apart : most) * kFixed);
    const uint64_t high = fixed >> kSpreadHalf, low = low_bits(fixed, kSpreadHalf);
    total += fixed;
    high_high += high * high;
    high_low += high * low;
    low_low += low * low;
  }
  sums[0] = total;
  sums[1] = high_high;
  sums[2] = high_low;
  sums[3] = low_low;
  return TS_OK;
}

int32_t ts_score_near(const uint64_t* weights, int64_t count, double total, double aim, double width, double best, double sharpness,
                      double* probabilities, float* scores) {
  if (weights == nullptr || probabilities == nullptr || scores == nullptr) return TS_BAD_POINTER;
  if (count < 1) return TS_BAD_SHAPE;
  for (int64_t i = 0; i < count; ++i) {
    const double probability = (__builtin_bit_cast(double, weights[i] + 0x4330000000000000) - kWholeBits) / total;
    const double apart = __builtin_fabs(probability - aim) / width;
    probabilities[i] = probability;
    scores[i] = static_cast<float>(best - sharpness * apart * apart / (1.0 + apart));
  }
  return TS_OK;
}
