// ts_weigh: turns a row of logits into whole-number weights, with the same bits at every level, whatever the number of lanes.
#include "twostroke/abi.h"
#include "twostroke/token_weight.h"

int32_t ts_weigh(const float* logits, int64_t count, double peak, double scale, const double* coefficients, int32_t terms, uint64_t* out) {
  using namespace twostroke;
  if (logits == nullptr || coefficients == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (count < 1 || terms != kSeriesTerms) return TS_BAD_SHAPE;
  double series[kSeriesTerms];
  for (int term = 0; term < kSeriesTerms; ++term) series[term] = coefficients[term];
  for (int64_t i = 0; i < count; ++i) out[i] = token_weight(logits[i], peak, scale, series);
  return TS_OK;
}
