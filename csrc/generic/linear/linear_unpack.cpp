// Unpacks int4 to bytes in plain C++, for levels without vector code for it.
#if !defined(TS_LEVEL_AVX512) && !defined(TS_LEVEL_NEON)
#include "twostroke/products/linear.h"

namespace twostroke {
namespace {

// Unpacks 16 k of 64 columns to element * multiplier + 128. Four k of a column lie next to each other.
void unpack_subgroup(const uint8_t* packed, const uint8_t* multipliers, uint8_t* bytes) {
  for (int64_t oct = 0; oct < 2; ++oct, packed += 4 * kPanel, bytes += 8 * kPanel) {
    for (int64_t i = 0; i < 4 * kPanel; ++i) {
      const int32_t m = multipliers[i];
      bytes[i] = static_cast<uint8_t>((packed[i] & 15) * m - 8 * m + 128);
      bytes[i + 4 * kPanel] = static_cast<uint8_t>((packed[i] >> 4) * m - 8 * m + 128);
    }
  }
}

}  // namespace

void unpack_int4(const uint8_t* packed, int64_t columns, uint8_t* bytes) {
  uint8_t multipliers[4 * kPanel];
  for (int64_t k = 0; k < columns; k += kStep, packed += kInt4StepBytes) {
    const uint8_t* elements = packed + kMultiplierBytes;
    for (int64_t part = 0; part < kStep / kSubgroup; ++part, elements += 2 * 4 * kPanel, bytes += kSubgroup * kPanel) {
      for (int64_t i = 0; i < 4 * kPanel; ++i) {
        const uint8_t pair = packed[part / 2 * kPanel + i / 4];
        multipliers[i] = part % 2 == 0 ? pair & 15 : pair >> 4;
      }
      unpack_subgroup(elements, multipliers, bytes);
    }
  }
}

}  // namespace twostroke
#endif
