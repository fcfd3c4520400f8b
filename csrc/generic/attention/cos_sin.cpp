// ts_cos_sin: only +, - and * on doubles, each rounded once and never fused, so that every machine gets the same bits. The compiler finds the
// vector instructions.
#include "twostroke/cos_sin.h"

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

}  // namespace
}  // namespace twostroke

int32_t ts_cos_sin(const double* __restrict__ angles, int64_t count, const double* constants, double* __restrict__ cosine,
                   double* __restrict__ sine) {
  using namespace twostroke;
  if (angles == nullptr || constants == nullptr || cosine == nullptr || sine == nullptr) return TS_BAD_POINTER;
  if (count < 0) return TS_BAD_SHAPE;
  Constants c;
  double* const parts = &c.turns;
  for (int i = 0; i < 4 + kSineTerms + kCosineTerms; ++i) parts[i] = constants[i];
  for (int64_t i = 0; i < count; ++i) {
    const double angle = angles[i] + 0.0;  // no negative zero
    const double shifted = angle * c.turns + kToWhole, quarter = shifted - kToWhole;
    double rest = angle - quarter * c.half_pi[0];
    rest -= quarter * c.half_pi[1];
    rest -= quarter * c.half_pi[2];
    const double square = rest * rest, odd = rest * series(c.sine, square), even = series(c.cosine, square);
    const uint64_t turn = __builtin_bit_cast(uint64_t, shifted), swapped = turn & 1;
    cosine[i] = signed_by(chosen(swapped, even, odd), (turn + 1) >> 1 & 1);
    sine[i] = signed_by(chosen(swapped, odd, even), turn >> 1 & 1);
  }
  return TS_OK;
}
