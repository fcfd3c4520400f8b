// Functions on registers of bytes for codes of less than a byte, for any width. Bytes describes one register of an instruction set. It has
// a byte in all places, bitwise and and or, shifts within 16 bits, a look-up in a table of 16 bytes, and sums of products. add_quad adds,
// in each 32 bits, the products of a quad of four-bit values and signed bytes. add_multiplied adds such sums times multipliers.
#pragma once
#include "twostroke/products/linear.h"
#include "twostroke/x86/registers.h"

namespace twostroke {

template <class Register>
struct Bytes;

// Shifts the bits of each byte left or right by `places`. A mask clears the bits that come from the neighbouring byte.
template <class Register>
TS_INLINE Register moved(Register bytes, int places) {
  if (places == 0) return bytes;
  return places > 0 ? Bytes<Register>::up(bytes, places) : Bytes<Register>::down(bytes, -places);
}

// The numbers by which codes of E2M1 and IQ4 are replaced in products. E2M1: twice their values, plus 12. IQ4: their values, plus 128 where
// products take any bytes.
template <CodeTable kTable>
TS_INLINE __m128i meanings() {
  if constexpr (kTable == kE2M1) return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  const __m128i more = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIQ4Codes));
  return kLevel.byte_products ? more : _mm_xor_si128(more, _mm_set1_epi8(static_cast<char>(0x80)));
}

// Unpacks bytes of two codes of 4 bits to bytes of one code each, and looks them up in the table.
template <CodeTable kTable, class Register>
TS_INLINE void split_nibbles(Register both, Register& low, Register& high) {
  typedef Bytes<Register> B;
  const Register mask = B::all(15);
  low = B::both(both, mask);
  high = B::both(B::down(both, 4), mask);
  if constexpr (kTable != kNoTable) {
    low = B::look_up(meanings<kTable>(), low);
    high = B::look_up(meanings<kTable>(), high);
  }
}

// The same for pair number `pair` of a block, with the codes' highest bits, which are in `bits`.
template <int kHigh, class Register>
TS_INLINE void split_pair(Register both, Register bits, int pair, Register& low, Register& high) {
  typedef Bytes<Register> B;
  const Register mask = B::all(15), place = B::all(((1 << kHigh) - 1) << 4);
  const int first = 2 * pair * kHigh, second = first + kHigh;  // the first bits of both quads; they must move to bit 4
  low = B::either(B::both(both, mask), B::both(moved(bits, 4 - first), place));
  high = B::either(B::both(B::down(both, 4), mask), B::both(moved(bits, 4 - second), place));
}

// A quad of codes that consist of a plane alone.
template <int kHigh, class Register>
TS_INLINE Register of_plane(Register bits, int quad) {
  return Bytes<Register>::both(moved(bits, -quad * kHigh), Bytes<Register>::all((1 << kHigh) - 1));
}

// Adds multiplier * sum of elements * activations to totals, for 16 k of kAcross registers of int4 columns, with lines in the order of
// memory. beginnings: the corrections for the offset of the elements, `apart` from one row's to the next. Sums of at most 16 * 8 * 127 fit
// the low 16 bits.
template <class Register, int kRows, int kAcross, int kAll>
TS_INLINE void add_subgroup(const uint8_t* octs, const Register (&multipliers)[kAcross], const int8_t* q, int64_t stride,
                            const int32_t* beginnings, int64_t apart, int first, Register (&totals)[kRows][kAll]) {
  typedef Bytes<Register> B;
  Register sums[kRows][kAcross];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) sums[r][j] = B::all_words(beginnings[r * apart]);
  }
  TS_UNROLL
  for (int oct = 0; oct < 2; ++oct) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      Register low, high;
      split_nibbles<kNoTable>(B::load(octs + oct * kQuadBytes + static_cast<int64_t>(sizeof(Register)) * j), low, high);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int8_t* at = q + r * stride + 8 * oct;
        sums[r][j] = B::add_quad(B::add_quad(sums[r][j], low, B::quad(at)), high, B::quad(at + 4));
      }
    }
  }
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) totals[r][first + j] = B::add_multiplied(totals[r][first + j], sums[r][j], multipliers[j]);
  }
}

}  // namespace twostroke
