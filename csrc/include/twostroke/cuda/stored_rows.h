// A group of codes and scales as files have them, as a thread reads it that has four rows of a panel: 16 bytes at once. See stored.h.
// Knows: packed layouts. Must not know: activations, callers.
#pragma once
#include "twostroke/cuda/stored.h"

namespace twostroke {
namespace cuda {

// Rows `lane` .. `lane` + 3 of one group that begins at `data` and has `columns` columns; lane: a multiple of 4.
struct StoredRows {
  const StoredLayout& layout;
  const uint8_t *scales, *minima, *codes;
  float scale[4], minimum_scale[4];  // of super kinds

  TS_MEMBER_INLINE StoredRows(const StoredLayout& of, const uint8_t* data, int64_t columns, int64_t lane) : layout(of) {
    const StoredRow first(of, data, columns, lane);
    const int64_t bytes = of.super != 0 ? 1 : of.floats != 0 ? 4 : 2;
    scales = first.scales + lane * bytes;
    minima = first.minima + lane * bytes;
    codes = first.codes + lane * 4;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(data) + lane + r;
      scale[r] = of.super != 0 ? widen_half(halves[0]) : 1.0f;
      minimum_scale[r] = of.super != 0 && of.minimum != 0 ? widen_half(halves[kPanel]) : 1.0f;
    }
  }
  // Four scales or minima of a step of kinds that are not super.
  TS_MEMBER_INLINE void plain(const uint8_t* from, int64_t step, float (&found)[4]) const {
    if (layout.floats != 0) {
      const Words4 words = load16(from + step * kPanel * 4);
      const uint32_t bits[4] = {words.x, words.y, words.z, words.w};
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) found[r] = float_of(bits[r]);
      return;
    }
    const uint64_t halves = *reinterpret_cast<const uint64_t*>(from + step * kPanel * 2);
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) found[r] = widen_half(static_cast<uint16_t>(halves >> (16 * r)));
  }
  TS_MEMBER_INLINE void steps(int64_t step, float (&found)[4]) const {
    if (layout.super == 0) return plain(scales, step, found);
    const uint32_t bytes = *reinterpret_cast<const uint32_t*>(scales + step * kPanel);
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) found[r] = static_cast<float>(static_cast<int8_t>(bytes >> (8 * r))) * scale[r];
  }
  // Where layout.minimum is set.
  TS_MEMBER_INLINE void minimums(int64_t step, float (&found)[4]) const {
    if (layout.super == 0) return plain(minima, step, found);
    const uint32_t bytes = *reinterpret_cast<const uint32_t*>(minima + step * kPanel);
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) found[r] = static_cast<float>(bytes >> (8 * r) & 0xff) * minimum_scale[r];
  }
  // What is stored of columns k .. k + 7 of each row: their words, and their plane of high bits; k: a multiple of 8.
  TS_MEMBER_INLINE void load_eight(int64_t k, Words4 (&raw)[2]) const {
    constexpr int64_t kBytes = kPanel * 4;  // of the words of a panel
    if (layout.nibbles == 0) {
      raw[0] = load16(codes + k / 4 * kBytes);
      raw[1] = load16(codes + (k / 4 + 1) * kBytes);
      return;
    }
    const int64_t block = layout.high != 0 ? 32 / layout.high : 8, at = k % block;
    const uint8_t* begin = codes + k / block * (layout.high != 0 ? 1 + block / 8 : 1) * kBytes;
    raw[0] = load16(begin + (layout.high != 0 ? 1 + at / 8 : 0) * kBytes);
    if (layout.high != 0) raw[1] = load16(begin);
  }
  // Codes of columns k .. k + 3 and k + 4 .. k + 7 of each row, each layout.offset too much.
  TS_MEMBER_INLINE void unpack_eight(int64_t k, const Words4 (&raw)[2], uint32_t (&low)[4], uint32_t (&high)[4]) const {
    if (layout.nibbles == 0) return apart(raw[0], low), apart(raw[1], high);
    uint32_t both[4], plane[4] = {0, 0, 0, 0};
    apart(raw[0], both);
    if (layout.high != 0) apart(raw[1], plane);
    const int64_t at = layout.high != 0 ? k % (32 / layout.high) : 0;
    const uint32_t mask = layout.high == 1 ? 0x01010101u : 0x03030303u;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      low[r] = both[r] & 0x0f0f0f0fu;
      high[r] = both[r] >> 4 & 0x0f0f0f0fu;
      if (layout.table != 0) {
        low[r] = doubled(low[r]);
        high[r] = doubled(high[r]);
      } else if (layout.high != 0) {
        const uint32_t bits = plane[r] >> (at / 4 * layout.high);
        low[r] |= (bits & mask) << 4;
        high[r] |= (bits >> layout.high & mask) << 4;
      }
    }
  }
  TS_MEMBER_INLINE static void apart(Words4 words, uint32_t (&four)[4]) {
    four[0] = words.x;
    four[1] = words.y;
    four[2] = words.z;
    four[3] = words.w;
  }
};

}  // namespace cuda
}  // namespace twostroke
