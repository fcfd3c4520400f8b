// A group of codes and scales as files have them, as one thread reads it: the thread's row of a panel. src/twostroke/ops/stored_layout.py
// defines the layouts.
#pragma once
#include "twostroke/cuda/machine/arithmetic.h"
#include "twostroke/cuda/products/packed.h"

namespace twostroke {
namespace cuda {

// Four floats of 4 bits become bytes with twice their value + 128. The values are 0 1 2 3 4 6 8 12, and the highest bit is the sign. Bytes
// do not carry into each other, because the largest is 140. From code 4 on, the code falls short of the magnitude by its two low bits, and
// code 7 by 2 more.
TS_DEVICE_INLINE uint32_t doubled(uint32_t nibbles) {
  const uint32_t ones = 0x01010101u, low = nibbles & 0x07070707u, upper = low >> 2 & ones, sign = nibbles >> 3 & ones;
  const uint32_t lacks = low & (upper | upper << 1);
  const uint32_t magnitude = low + lacks + ((lacks & lacks >> 1 & ones) << 1);
  return 0x80808080u + magnitude - 2 * (magnitude & (sign << 4) - sign);
}

// Eight codes of IQ4 as one word, from number `first` on.
constexpr uint64_t iq4_word(int first) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(kIQ4Codes[first + i]) << (8 * i);
  return word;
}

// Four codes of IQ4 become bytes with their values + 128. The table of values is two words of eight bytes.
TS_DEVICE_INLINE uint32_t iq4_codes(uint32_t nibbles) {
  constexpr uint64_t kLow = iq4_word(0), kHigh = iq4_word(8);
  uint32_t found = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) {
    const uint32_t number = nibbles >> (8 * i) & 15;
    found |= static_cast<uint32_t>((number < 8 ? kLow : kHigh) >> (number % 8 * 8) & 255) << (8 * i);
  }
  return found;
}

// The third bits of a quad, at bit 2 of its four bytes. bits: the third bits of a row and 16 columns, where bit 4 i + q belongs to column i
// of quad q.
TS_DEVICE_INLINE uint32_t thirds_of(uint32_t bits, int32_t quad) {
  const uint32_t own = bits >> quad;
  return ((own & 1) | (own & 0x10) << 4 | (own & 0x100) << 8 | (own & 0x1000) << 12) << 2;
}

// The values of four nibbles. table: the table of StoredLayout.
TS_DEVICE_INLINE uint32_t meant(int32_t table, uint32_t nibbles) {
  return table == kNoTable ? nibbles : table == kE2M1 ? doubled(nibbles) : iq4_codes(nibbles);
}

// One row (`lane`) of one group. The group begins at `data` and has `columns` columns.
struct StoredRow {
  const StoredLayout& layout;
  const uint8_t *scales, *minima, *codes;
  int64_t lane;
  float scale, minimum_scale;  // for super kinds

  TS_MEMBER_INLINE StoredRow(const StoredLayout& of, const uint8_t* data, int64_t columns, int64_t lane_of)
      : layout(of), scales(data), minima(data), codes(data), lane(lane_of), scale(1.0f), minimum_scale(1.0f) {
    const int64_t steps = columns / of.sub, kinds = of.minimum != 0 ? 2 : 1;
    if (of.super != 0) {
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(data);
      scale = widen_half(halves[lane]);
      if (of.minimum != 0) minimum_scale = widen_half(halves[kPanel + lane]);
      scales = data + kinds * kPanel * 2;
      minima = scales + steps * kPanel;
      codes = scales + kinds * steps * kPanel;
    } else {
      const int64_t bytes = steps * kPanel * (of.floats != 0 ? 4 : 2);
      minima = data + bytes;
      codes = data + kinds * bytes;
    }
  }
  TS_MEMBER_INLINE float plain(const uint8_t* from, int64_t step) const {
    const int64_t at = step * kPanel + lane;
    return layout.floats != 0 ? reinterpret_cast<const float*>(from)[at] : widen_half(reinterpret_cast<const uint16_t*>(from)[at]);
  }
  TS_MEMBER_INLINE float step(int64_t index) const {
    if (layout.super == 0) return plain(scales, index);
    return static_cast<float>(static_cast<int8_t>(scales[index * kPanel + lane])) * scale;
  }
  // The minimum of a step. Only kinds with layout.minimum have one.
  TS_MEMBER_INLINE float minimum(int64_t index) const {
    if (layout.super == 0) return plain(minima, index);
    return static_cast<float>(minima[index * kPanel + lane]) * minimum_scale;
  }
  // Codes of columns k .. k + 3, each with an excess of layout.offset. k must be a multiple of 4.
  TS_MEMBER_INLINE uint32_t quad(int64_t k) const {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(codes) + lane;
    if (layout.nibbles == 0) return words[k / 4 * kPanel];
    if (layout.alone != 0) return plane_quad(k);
    if (layout.high != 0) return high_quad(words, k);
    const uint32_t both = words[k / 8 * kPanel], four = (k % 8 < 4 ? both : both >> 4) & 0x0f0f0f0fu;
    return meant(layout.table, four);
  }
  // The same for planes of two bits, 16 columns each, with or without third bits after them.
  TS_MEMBER_INLINE uint32_t plane_quad(int64_t k) const {
    const int32_t quad = static_cast<int32_t>(k % 16 / 4);
    const uint8_t* block = codes + k / 16 * kPanel * (layout.third != 0 ? 6 : 4);
    const uint32_t two = reinterpret_cast<const uint32_t*>(block)[lane] >> (2 * quad) & 0x03030303u;
    return layout.third == 0 ? two : two | thirds_of(reinterpret_cast<const uint16_t*>(block + kPanel * 4)[lane], quad);
  }
  // The same for blocks with a plane of high bits before their nibbles. A block has 32 / layout.high columns.
  TS_MEMBER_INLINE uint32_t high_quad(const uint32_t* words, int64_t k) const {
    const int64_t block = 32 / layout.high, at = k % block;
    const uint32_t* begin = words + k / block * (1 + block / 8) * kPanel;
    const uint32_t both = begin[(1 + at / 8) * kPanel], low = (at % 8 < 4 ? both : both >> 4) & 0x0f0f0f0fu;
    const uint32_t mask = layout.high == 1 ? 0x01010101u : 0x03030303u;
    return low | (begin[0] >> (at / 4 * layout.high) & mask) << 4;
  }
};

}  // namespace cuda
}  // namespace twostroke
