// A group of codes and scales as files have them, for a thread with four rows of a panel that goes through the group 32 columns at a time.
// Loading and unpacking are separate steps, so that loads can begin long before their values are needed. See stored.h.
#pragma once
#include "twostroke/cuda/products/stored.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kAnyKind = -1;  // for kernels whose layout the compiler does not know

TS_DEVICE_INLINE Words4 load8(const void* from) {
  const uint64_t both = *static_cast<const uint64_t*>(from);
  return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32), 0, 0};
}

// The float16 numbers of four rows; for a group's multipliers the function reads bytes.
TS_DEVICE_INLINE float half_of_four(Words4 words, int row) { return widen_half(static_cast<uint16_t>(words[row / 2] >> (16 * (row % 2)))); }

// Rows `lane` .. `lane` + 3 of one group, which begins at `data` and has `columns` columns. lane must be a multiple of 4.
struct StoredRows {
  const uint8_t* data;
  int32_t columns, lane, scales, minima, codes;  // the bytes at which these rows' numbers begin

  TS_MEMBER_INLINE StoredRows(const StoredLayout& of, const uint8_t* data_of, int32_t columns_of, int32_t lane_of)
      : data(data_of), columns(columns_of), lane(lane_of), scales(0), minima(0), codes(0) {
    const int32_t bytes = of.super != 0 ? 1 : of.floats != 0 ? 4 : 2, kinds = of.minimum != 0 ? 2 : 1;
    const int32_t each = columns / of.sub * static_cast<int32_t>(kPanel) * bytes;  // bytes of one kind
    const int32_t begin = of.super != 0 ? kinds * 2 * static_cast<int32_t>(kPanel) : 0;
    scales = begin + lane * bytes;
    minima = scales + each;
    codes = begin + kinds * each + lane * 4;
  }
  // For columns after the group's last ones threads load the last ones again, because a branch around loads would wait for them.
  TS_MEMBER_INLINE int32_t within(int32_t asked) const {
    const int32_t found = asked < columns ? asked : columns - 32;
    __builtin_assume(found >= 0 && found % 32 == 0);
    return found;
  }
};

// Byte kRow of a word as a float. The conversion that the machine has for it takes four times as long.
template <int kRow>
TS_DEVICE_INLINE float byte_of(uint32_t word) {
  return float_of(chosen_bytes<0x7540 + kRow>(word, 0x4b000000u)) - 0x1p23f;  // 2^23 + byte
}
// The same for a signed byte to which 128 was added.
template <int kRow>
TS_DEVICE_INLINE float signed_byte_of(uint32_t word) {
  return float_of(chosen_bytes<0x7540 + kRow>(word, 0x4b000000u)) - (0x1p23f + 128.0f);
}

// The numbers of a super kind's group that all of its steps share.
struct StoredSuper {
  Words4 scales, minima;  // float16 numbers of four rows

  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows) {
    scales = minima = Words4{0, 0, 0, 0};
    if (layout.super == 0) return;
    scales = load8(rows.data + rows.lane * 2);
    if (layout.minimum != 0) minima = load8(rows.data + rows.lane * 2 + kPanel * 2);
  }
};

// The stored scales and minima of 32 columns of four rows, of each of two steps where a step has 16 columns.
struct StoredNumbers {
  Words4 scales[2], minima[2];

  TS_MEMBER_INLINE static Words4 load_four(const StoredLayout& layout, const uint8_t* from) {
    if (layout.super != 0) return {*reinterpret_cast<const uint32_t*>(from), 0, 0, 0};
    return layout.floats != 0 ? load16(from) : load8(from);
  }
  // k: the first column.
  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows, int32_t k) {
    const uint32_t step = static_cast<uint32_t>(k) / static_cast<uint32_t>(layout.sub);
    const uint32_t each = static_cast<uint32_t>(kPanel) * (layout.super != 0 ? 1 : layout.floats != 0 ? 4 : 2);
    TS_EVERY_LANE
    for (uint32_t i = 0; i < 2; ++i) {
      if (i == 1 && layout.sub != 16) continue;
      scales[i] = load_four(layout, rows.data + static_cast<uint32_t>(rows.scales) + (step * each + i * each));
      if (layout.minimum != 0) minima[i] = load_four(layout, rows.data + static_cast<uint32_t>(rows.minima) + (step * each + i * each));
    }
  }
  // The factors of the sums of step `which`, and the numbers that are added times the sums of the activations: the minima's negatives.
  TS_MEMBER_INLINE void factors(const StoredLayout& layout, const StoredSuper& super, int which, float (&scale)[4], float (&minimum)[4]) const {
    if (layout.super != 0) {
      const uint32_t raised = scales[which].x ^ 0x80808080u, least = minima[which].x;
      const float steps[4] = {signed_byte_of<0>(raised), signed_byte_of<1>(raised), signed_byte_of<2>(raised), signed_byte_of<3>(raised)};
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) {
        scale[r] = steps[r] * half_of_four(super.scales, r);
        minimum[r] = 0.0f;
      }
      if (layout.minimum == 0) return;
      const float taken[4] = {byte_of<0>(least), byte_of<1>(least), byte_of<2>(least), byte_of<3>(least)};
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) minimum[r] = taken[r] * -half_of_four(super.minima, r);
      return;
    }
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      scale[r] = one(layout, scales[which], r);
      minimum[r] = layout.minimum != 0 ? 0.0f - one(layout, minima[which], r) : 0.0f;
    }
  }
  static TS_MEMBER_INLINE float one(const StoredLayout& layout, Words4 words, int row) {
    return layout.floats != 0 ? float_of(words[row]) : half_of_four(words, row);
  }
};

// The codes of eight columns of four rows.
struct StoredColumns {
  Words4 words[2];  // codes, and their plane of high bits

  // The columns whose high bits are in one word.
  static TS_MEMBER_INLINE int32_t plane(const StoredLayout& layout) { return layout.high != 0 ? 32 / layout.high : 8; }

  // Loads eight columns from k + 8 * part on; k must be a multiple of 32.
  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows, int32_t k, int32_t part) {
    load_low(layout, rows, k, part);
    if (layout.high != 0) words[1] = load_once(step(layout, rows, k) + begin(layout, 8 * part));
  }
  // The same for columns whose high bits are in the words of columns that were loaded before.
  TS_MEMBER_INLINE void load_after(const StoredLayout& layout, const StoredRows& rows, int32_t k, int32_t part, const StoredColumns& before) {
    if (layout.alone == 0) load_low(layout, rows, k, part);
    else words[0] = before.words[0];
    words[1] = before.words[1];
  }
  // Asks for the codes of a step whose words this thread and those with the other parts will load.
  static TS_MEMBER_INLINE void load_step_soon(const StoredLayout& layout, const StoredRows& rows, int32_t k) {
    const uint8_t* from = step(layout, rows, k);
    TS_EVERY_LANE
    for (int i = 0; i < 8; ++i)
      if (i < bits(layout)) load_soon(from + i * kBytes);
  }
  // Codes of the first four and last four columns of each row, each with an excess of layout.offset. part: the place of the columns among
  // 32 columns, in eights.
  TS_MEMBER_INLINE void unpack(const StoredLayout& layout, int32_t part, uint32_t (&low)[4], uint32_t (&high)[4]) const {
    const int32_t shift = layout.high != 0 ? 8 * part % plane(layout) / 4 * layout.high : 0;
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
  // The same codes as signed bytes without an excess, for kinds without a table.
  TS_MEMBER_INLINE void unpack_signed(const StoredLayout& layout, int32_t part, uint32_t (&low)[4], uint32_t (&high)[4]) const {
    unpack(layout, part, low, high);
    if (layout.offset == 0) return;
    const uint32_t sign = static_cast<uint32_t>(layout.offset) * 0x01010101u, above = 256 / static_cast<uint32_t>(layout.offset) - 2;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      low[r] ^= sign;
      high[r] ^= sign;
      if (layout.offset == 128) continue;
      low[r] += (low[r] & sign) * above;  // copies the sign to the bits above it
      high[r] += (high[r] & sign) * above;
    }
  }

 private:
  static constexpr int32_t kBytes = kPanel * 4;  // bytes of the words of a panel

  // The byte of a step of 32 columns at which the block of a column begins.
  static TS_MEMBER_INLINE int32_t begin(const StoredLayout& layout, int32_t own) {
    if (layout.alone != 0) return own / 16 * (layout.third != 0 ? kBytes * 3 / 2 : kBytes);
    return own / plane(layout) * (layout.high != 0 ? 1 + plane(layout) / 8 : 1) * kBytes;
  }
  static TS_MEMBER_INLINE int32_t bits(const StoredLayout& layout) {
    return layout.alone != 0 ? layout.high + layout.third : layout.nibbles != 0 ? 4 + layout.high : 8;
  }
  // The bytes of the step that begins with column k.
  static TS_MEMBER_INLINE const uint8_t* step(const StoredLayout& layout, const StoredRows& rows, int32_t k) {
    return rows.data + static_cast<uint32_t>(rows.codes + k * (static_cast<int32_t>(kPanel) / 8) * bits(layout));
  }
  TS_MEMBER_INLINE void load_low(const StoredLayout& layout, const StoredRows& rows, int32_t k, int32_t part) {
    const uint8_t* from = step(layout, rows, k);
    if (layout.nibbles == 0) {
      words[0] = load_once(from + 2 * part * kBytes);
      words[1] = load_once(from + (2 * part + 1) * kBytes);
      return;
    }
    from += begin(layout, 8 * part);
    if (layout.alone != 0) {
      words[0] = Words4{0, 0, 0, 0};
      if (layout.third != 0) words[0] = load8(from + kBytes - 2 * rows.lane);  // a row has half as many bytes here
      return;
    }
    words[0] = load_once(from + (layout.high != 0 ? 1 + 8 * part % plane(layout) / 8 : 0) * kBytes);
  }
};

// The codes and numbers of 32 columns of four rows, for the thread with the eight columns from 8t on.
struct StepColumns {
  StoredColumns codes;
  StoredNumbers numbers;

  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows, int32_t asked, int32_t t) {
    const int32_t k = rows.within(asked);
    codes.load(layout, rows, k, t);
    numbers.load(layout, rows, k);
  }
  // The factors of step `which`; 0 where `there` is false.
  TS_MEMBER_INLINE void factors(const StoredLayout& layout, const StoredSuper& super, int which, bool there, float (&scale)[4], float (&minimum)[4]) const {
    numbers.factors(layout, super, which, scale, minimum);
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r)
      if (!there) scale[r] = minimum[r] = 0.0f;
  }
};

}  // namespace cuda
}  // namespace twostroke
