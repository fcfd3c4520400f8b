// ts_rotary_rows: only +, - and * on doubles, each rounded once and never fused, so that every machine gets the same bits. The compiler finds the
// vector instructions.
#include "twostroke/rows/rotary_rows.h"

namespace twostroke {
namespace {

constexpr double kToWhole = 6755399441055744.0;  // 1.5 * 2^52; adding and subtracting it rounds to a whole number, half to even
constexpr int kSineTerms = 9, kCosineTerms = 10;

struct Constants {
  double turns, half_pi[3], sine[kSineTerms], cosine[kCosineTerms];
};

template <int terms>
inline double series(const double (&coefficients)[terms], double square) {
  double total = coefficients[terms - 1];
  for (int i = terms - 2; i >= 0; --i) total = total * square + coefficients[i];
  return total;
}

// The number with its sign changed where `negative` is 1.
inline double signed_by(double value, uint64_t negative) {
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, value) ^ negative << 63);
}

inline double chosen(uint64_t second, double one, double two) {
  const uint64_t mask = uint64_t{0} - second;
  return __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, one) & ~mask) | (__builtin_bit_cast(uint64_t, two) & mask));
}

constexpr int64_t kBlock = 256;  // pairs whose doubles are kept at a time

// The cosines and sines of the angles position * frequencies[i].
void cos_sin(const double* __restrict__ frequencies, double position, int64_t count, const Constants& c, double* __restrict__ cosine,
             double* __restrict__ sine) {
  for (int64_t i = 0; i < count; ++i) {
    const double angle = position * frequencies[i];
    const double shifted = angle * c.turns + kToWhole, quarter = shifted - kToWhole;
    double rest = angle - quarter * c.half_pi[0];
    rest -= quarter * c.half_pi[1];
    rest -= quarter * c.half_pi[2];
    const double square = rest * rest, odd = rest * series(c.sine, square), even = series(c.cosine, square);
    const uint64_t turn = __builtin_bit_cast(uint64_t, shifted), swapped = turn & 1;
    cosine[i] = signed_by(chosen(swapped, even, odd), (turn + 1) >> 1 & 1);
    sine[i] = signed_by(chosen(swapped, odd, even), turn >> 1 & 1);
  }
}

void write_scaled(const double* __restrict__ values, double factor, int64_t count, float* __restrict__ out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(values[i] * factor);
}

}  // namespace
}  // namespace twostroke

int32_t ts_rotary_rows(const double* frequencies, int64_t pairs, int64_t rows, int64_t back, const double* constants, double cosine_factor,
                       double sine_factor, float* cosine, float* sine) {
  using namespace twostroke;
  if (frequencies == nullptr || constants == nullptr || cosine == nullptr || sine == nullptr) return TS_BAD_POINTER;
  if (pairs < 0 || rows < 0) return TS_BAD_SHAPE;
  Constants c;
  double* const parts = &c.turns;
  for (int i = 0; i < 4 + kSineTerms + kCosineTerms; ++i) parts[i] = constants[i];
  double cosines[kBlock], sines[kBlock];
  for (int64_t row = 0; row < rows; ++row) {
    const double position = row > back ? static_cast<double>(row - back) : 0.0;
    for (int64_t first = 0; first < pairs; first += kBlock) {
      const int64_t count = pairs - first < kBlock ? pairs - first : kBlock, at = row * pairs + first;
      cos_sin(frequencies + first, position, count, c, cosines, sines);
      write_scaled(cosines, cosine_factor, count, cosine + at);
      write_scaled(sines, sine_factor, count, sine + at);
    }
  }
  return TS_OK;
}
