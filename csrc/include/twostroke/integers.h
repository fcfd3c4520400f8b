// Sixteen int32 lanes, the bytes that are summed into them four at a time, and numbers as two digits: what attention over integer K
// and V needs next to simd.h. Integer sums are exact, so they are the same at every level and in any order.
//
// A whole number is kept as one byte in [-127, 127] or as two digits, 128 * high + low, high in [-128, 127] and low in [0, 127]: signed
// bytes, which unsigned bytes of K or V are multiplied with, and unsigned ones where the number is not negative, for signed bytes of V.
// store_bytes and store_digits keep 64 rounded numbers; the latter returns lanes that add up to their sum. What came from a NaN is
// any number.
#pragma once
#include "twostroke/quad.h"
#include "twostroke/simd.h"

#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/integers_avx512.h"
#elif defined(TS_LEVEL_AVX2)
#include "twostroke/x86/integers_avx2.h"
#elif defined(TS_LEVEL_NEON)
#include "twostroke/neon/integers.h"
#else
#include "twostroke/plain/integers.h"
#endif

namespace twostroke {

constexpr int kDigits = 2;
constexpr float kLargestByte = 127.0f, kLargestWhole = 16383.0f;
constexpr float kSmallestScaled = 1.9259299e-34f;  // 2^-112, whose inverse is still finite
constexpr float kRounder = 12582912.0f;            // 1.5 * 2^23: adding it rounds to whole numbers, ties to even

// Numbers that share a scale: number = whole * scale, for up to 16 rows. largest: of each row's magnitudes, which becomes largest_whole; NaN
// or infinity makes every number of the row NaN. A row whose largest is below kSmallestScaled has that one's scale.
struct Scaling {
  Vec scale, inverse;

  Scaling(Vec largest, float largest_whole) {
    const Vec kept = max(set1(kSmallestScaled), largest);  // the second where one is NaN
    scale = kept * set1(1.0f / largest_whole) + (kept - kept);
    inverse = set1(largest_whole) / kept;
  }
};

// What store_bytes and store_digits take: the whole number in the low 16 bits.
TS_VECTOR_INLINE Vec rounded(Vec number, Vec inverse) { return fma(number, inverse, set1(kRounder)); }

}  // namespace twostroke
