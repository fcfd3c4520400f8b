// Stored codes in 256-bit registers: a register has four k of eight columns.
#pragma once
#include "twostroke/products/stored_head.h"
#include "twostroke/x86/linear_avx2.h"

namespace twostroke {

constexpr int kLanes = 8;                                    // columns of one register
constexpr int kVectors = static_cast<int>(kPanel) / kLanes;  // registers across a panel
constexpr int64_t kRegisterBytes = 4 * kLanes;

template <int32_t kKind>
using Head = StoredHead<kKind, Columns256>;

// Adds the third bits of both quads of 8 rows at bit 2 of each code. from: two bytes for each row, whose bit 4 i + q belongs to column i of
// quad q.
TS_INLINE void add_thirds(const uint8_t* from, int pair, __m256i& low, __m256i& high) {
  const __m256i each = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i spread = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
  const __m256i bits = _mm256_shuffle_epi8(each, spread), four = _mm256_set1_epi8(4);
  const __m256i first = _mm256_set1_epi16(static_cast<int16_t>(0x1001 << (2 * pair))), second = _mm256_slli_epi16(first, 1);
  low = _mm256_or_si256(low, _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bits, first), first), four));
  high = _mm256_or_si256(high, _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bits, second), second), four));
}

// How codes of a kind are multiplied. kUnit: the columns for which the work is written out; kUnitBytes: their bytes. kCentre: without VNNI,
// the number that is subtracted from each code of more than 4 bits in sums of 16 bits, so that they hold a whole unit. kSigned: without
// VNNI, whether codes of 8 bits are multiplied as signed bytes. kMore: the excess of the multiplied codes.
template <int32_t kOfKind>
struct Codes {
  static constexpr int32_t kKind = kOfKind;
  static constexpr StoredShape kShape = stored_shape(kKind);
  static constexpr int kHigh = static_cast<int>(kShape.high);
  static constexpr bool kSigned = !kAnyBytes && (!kShape.nibbles || kShape.table == kIQ4);
  static constexpr int kLargest = kShape.table == kE2M1 ? 24 : (1 << kShape.bits) - 1;
  static constexpr int kUnit = kShape.nibbles && kShape.sub >= 32 ? 32 : 16;
  static constexpr int64_t kUnitBytes = kUnit * kPanel * kShape.bits / 8;
  static constexpr int kCentre = !kSigned && !kAnyBytes && kLargest > 15 ? (kLargest + 1) / 2 : 0;
  static constexpr int32_t kMore = kSigned ? 0 : Head<kKind>::kMore;
  // A code times an activation of at most 127, twice in each of a unit's quads, must fit 16 bits.
  static_assert(kSigned || kAnyBytes || (kLargest - kCentre > kCentre ? kLargest - kCentre : kCentre) * 254 * kUnit / 4 < 1 << 15,
                "sums of 16 bits must not overflow");
  static_assert(kCentre == 0 || kUnit == kShape.sub, "a step's sums begin with what is taken off");

  // Both quads of 8 columns of k, number `oct` of a unit. row: the first row of the register.
  static TS_INLINE void split(const uint8_t* unit, int64_t row, int oct, __m256i& low, __m256i& high) {
    const uint8_t* from = unit + 4 * row;
    if constexpr (kHigh == 0) {
      split_nibbles<kShape.table>(load(from + oct * kQuadBytes), low, high);
    } else if constexpr (kShape.alone) {
      constexpr int kPairs = 4 / kHigh;
      const __m256i bits = load(from + oct / kPairs * kQuadBytes);
      low = of_plane<kHigh>(bits, 2 * (oct % kPairs));
      high = of_plane<kHigh>(bits, 2 * (oct % kPairs) + 1);
      if constexpr (kShape.third) add_thirds(unit + kQuadBytes + 2 * row, oct, low, high);
    } else {
      constexpr int kPairs = 4 / kHigh;
      const uint8_t* plane = from + oct / kPairs * (1 + kPairs) * kQuadBytes;
      split_pair<kHigh>(load(plane + (1 + oct % kPairs) * kQuadBytes), load(plane), oct % kPairs, low, high);
    }
  }
};

// Codes of nibbles that have become bytes, two quads of k one after the other.
template <int32_t kOfKind>
struct Unpacked : Codes<kOfKind> {
  static constexpr int64_t kUnitBytes = Codes<kOfKind>::kUnit * kPanel;

  static TS_INLINE void split(const uint8_t* unit, int64_t row, int oct, __m256i& low, __m256i& high) {
    const uint8_t* from = unit + 4 * row;
    low = load(from + 2 * oct * kQuadBytes);
    high = load(from + (2 * oct + 1) * kQuadBytes);
  }
};

}  // namespace twostroke
