// The vectors that attention over integer K and V needs in addition to simd.h. They are sixteen int32 lanes, bytes that are added into them
// four at a time, and numbers as two digits. Integer sums are exact, so they are the same at every level and in any order.
//
// A whole number is stored as one byte in [-127, 127] or as two digits: 128 * high + low, with high in [-128, 127] and low in [0, 127].
// These are signed bytes, which are multiplied by unsigned bytes of K or V. Where the number is not negative they are unsigned bytes, for
// signed bytes of V. store_bytes and store_digits store 64 rounded numbers; store_digits returns lanes whose sum is the sum of the numbers.
// A NaN becomes an arbitrary number.
#pragma once
#include "twostroke/products/quad.h"
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
constexpr float kSmallestScaled = 1.9259299e-34f;  // the value 2^-112, whose inverse is still finite
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23; adding it rounds to whole numbers, ties to even

// Numbers that share a scale, for up to 16 rows: number = whole * scale. largest: the largest magnitude of each row, which becomes
// largest_whole. NaN or infinity makes every number of the row NaN. A row whose largest magnitude is below kSmallestScaled has the scale of
// kSmallestScaled.
struct Scaling {
  Vec scale, inverse;

  Scaling(Vec largest, float largest_whole) {
    const Vec kept = max(set1(kSmallestScaled), largest);  // max returns its second operand where one is NaN
    scale = kept * set1(1.0f / largest_whole) + (kept - kept);
    inverse = set1(largest_whole) / kept;
  }
};

// The input of store_bytes and store_digits: the whole number in the low 16 bits.
TS_VECTOR_INLINE Vec rounded(Vec number, Vec inverse) { return fma(number, inverse, set1(kRounder)); }

}  // namespace twostroke
