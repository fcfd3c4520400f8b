// A group of codes and scales as files have them, for a thread with four rows of a panel that goes through the group 32 columns at a time.
// Loading and unpacking are separate steps, so that loads can begin long before their values are needed. See stored.h.
#pragma once
#include "twostroke/cuda/products/stored.h"

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE Words4 load8(const void* from) {
  const uint64_t both = *static_cast<const uint64_t*>(from);
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32), 0, 0};
}

// The float16 numbers of four rows; for a group's multipliers the function reads bytes.
TS_DEVICE_INLINE float half_of_four(Words4 words, int row) { return widen_half(static_cast<uint16_t>(words[row / 2] >> (16 * (row % 2)))); }

// Rows `lane` .. `lane` + 3 of one group, which begins at `data` and has `columns` columns. lane must be a multiple of 4.
struct StoredRows {
  const uint8_t *super, *scales, *minima, *codes;
  int32_t columns, lane;

  TS_MEMBER_INLINE StoredRows(const StoredLayout& of, const uint8_t* data, int32_t columns_of, int32_t lane_of)
      : super(data + lane_of * 2), scales(nullptr), minima(nullptr), codes(nullptr), columns(columns_of), lane(lane_of) {
    const int32_t bytes = of.super != 0 ? 1 : of.floats != 0 ? 4 : 2, kinds = of.minimum != 0 ? 2 : 1;
    const int32_t each = columns / of.sub * static_cast<int32_t>(kPanel) * bytes;  // bytes of one kind
    const uint8_t* begin = data + (of.super != 0 ? kinds * 2 * static_cast<int32_t>(kPanel) : 0);
    scales = begin + lane * bytes;
    minima = scales + each;
    codes = begin + kinds * each + lane * 4;
  }
};

// The numbers of a super kind's group that all of its steps share.
struct StoredSuper {
  Words4 scales, minima;  // float16 numbers of four rows

  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows) {
    scales = minima = Words4{0, 0, 0, 0};
    if (layout.super == 0) return;
    scales = load8(rows.super);
    if (layout.minimum != 0) minima = load8(rows.super + kPanel * 2);
  }
};

// The stored bytes of 32 columns of four rows, for the thread with the eight columns from 8 * part on.
struct StoredColumns {
  Words4 words[2];  // codes, and their plane of high bits
  Words4 scales[2], minima[2];  // the numbers of each of two steps, where a step has 16 columns

  TS_MEMBER_INLINE static Words4 load_four(const StoredLayout& layout, const uint8_t* from, int32_t step) {
    if (layout.super != 0) return {*reinterpret_cast<const uint32_t*>(from + step * kPanel), 0, 0, 0};
    return layout.floats != 0 ? load16(from + step * kPanel * 4) : load8(from + step * kPanel * 2);
  }
  // Loads columns k .. k + 31. For columns after the group's last ones it loads the last ones again, because a branch around loads would
  // wait for them.
  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows, int32_t asked, int32_t part) {
    const int32_t k = asked < rows.columns ? asked : rows.columns - 32, step = k / layout.sub;
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && layout.sub != 16) continue;
      scales[i] = load_four(layout, rows.scales, step + i);
      if (layout.minimum != 0) minima[i] = load_four(layout, rows.minima, step + i);
    }
    constexpr int32_t kBytes = kPanel * 4;  // bytes of the words of a panel
    const int32_t own = k + 8 * part;
    if (layout.nibbles == 0) {
      words[0] = load_once(rows.codes + own / 4 * kBytes);
      words[1] = load_once(rows.codes + (own / 4 + 1) * kBytes);
      return;
    }
    if (layout.alone != 0) {
      const uint8_t* begin = rows.codes + own / 16 * (layout.third != 0 ? kBytes * 3 / 2 : kBytes);
      words[1] = load_once(begin);
      words[0] = Words4{0, 0, 0, 0};
      if (layout.third != 0) words[0] = load8(begin + kBytes - 2 * rows.lane);  // a row has half as many bytes here
      return;
    }
    const int32_t block = layout.high != 0 ? 32 / layout.high : 8;
    const uint8_t* begin = rows.codes + own / block * (layout.high != 0 ? 1 + block / 8 : 1) * kBytes;
    words[0] = load_once(begin + (layout.high != 0 ? 1 + own % block / 8 : 0) * kBytes);
    if (layout.high != 0) words[1] = load_once(begin);
  }
  // Codes of a thread's first four and last four columns of each row, each with an excess of layout.offset.
  TS_MEMBER_INLINE void unpack(const StoredLayout& layout, int32_t part, uint32_t (&low)[4], uint32_t (&high)[4]) const {
    const int32_t shift = layout.high != 0 ? 8 * part % (32 / layout.high) / 4 * layout.high : 0;
    const uint32_t mask = layout.high == 1 ? 0x01010101u : 0x03030303u;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      if (layout.nibbles == 0) {
        low[r] = words[0][r];
        high[r] = words[1][r];
        continue;
      }
      low[r] = layout.alone != 0 ? 0 : words[0][r] & 0x0f0f0f0fu;
      high[r] = layout.alone != 0 ? 0 : words[0][r] >> 4 & 0x0f0f0f0fu;
      if (layout.table != 0) {
        low[r] = meant(layout.table, low[r]);
        high[r] = meant(layout.table, high[r]);
      } else if (layout.high != 0) {
        const uint32_t bits = words[1][r] >> shift;
        const int32_t place = layout.alone != 0 ? 0 : 4;
        low[r] |= (bits & mask) << place;
        high[r] |= (bits >> layout.high & mask) << place;
        if (layout.third != 0) {
          const uint32_t third = words[0][r / 2] >> (16 * (r % 2));
          low[r] |= thirds_of(third, 2 * part % 4);
          high[r] |= thirds_of(third, 2 * part % 4 + 1);
        }
      }
    }
  }
  // The factors of the sums of step `which`, and the numbers that are subtracted. Both are 0 where `there` is false.
  TS_MEMBER_INLINE void factors(const StoredLayout& layout, const StoredSuper& super, int which, bool there, float (&scale)[4], float (&minimum)[4]) const {
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      scale[r] = one(layout, scales[which], r);
      minimum[r] = layout.minimum != 0 ? layout.super != 0 ? static_cast<float>(minima[which].x >> (8 * r) & 0xff) : one(layout, minima[which], r) : 0.0f;
      if (layout.super != 0) {
        scale[r] *= half_of_four(super.scales, r);
        if (layout.minimum != 0) minimum[r] *= half_of_four(super.minima, r);
      }
      if (!there) scale[r] = minimum[r] = 0.0f;
    }
  }
  TS_MEMBER_INLINE static float one(const StoredLayout& layout, Words4 words, int row) {
    if (layout.super != 0) return static_cast<float>(static_cast<int8_t>(words.x >> (8 * row)));
    return layout.floats != 0 ? float_of(words[row]) : half_of_four(words, row);
  }
};

}  // namespace cuda
}  // namespace twostroke
