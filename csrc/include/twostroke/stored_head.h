// What the codes of one group are multiplied by, and how lines are fetched, for levels that multiply codes as they lie.
#pragma once
#include "twostroke/stored.h"
#include "twostroke/stream.h"

namespace twostroke {

// What is fetched while rows meet a group. line: with each line that is read; moment: once or more in each step.
//
// Lines after the one that is read (stream.h). One row of nibbles is quickest without where the CPU's own prefetchers follow one stretch
// of memory, one row of codes of 6 bits is not; more rows look farther ahead, because they take longer next to a line. kAlone: one such row on
// such a CPU. kNibbles: codes of 4 and 5 bits.
template <bool kNibbles, int kRows, bool kAlone>
struct LinesBehind {
  TS_INLINE void line(const uint8_t* at) const {
    if constexpr (kAlone && kNibbles) return;
    if constexpr (kAlone) return Ahead{kFarOfOne, kNearOfOne}.prefetch(at);
    if constexpr (kRows == 1) return prefetch_line(at);
    if constexpr (!kNibbles && kRows <= 3) return Ahead{kFarOfOne, kNearOfOne}.prefetch(at);
    Ahead{kFarOfSome, kNearOfSome}.prefetch(at);
  }
  TS_INLINE void moment() const {}
};

// The group after this one, in equal parts by all the tiles of rows that meet this one: the CPU's own prefetchers stop at each page, so a
// group that nobody fetched is waited for, and the fewer the rows, the larger a part of the whole that is.
struct GroupAfter {
  Fetch* ahead;

  TS_INLINE void line(const uint8_t*) const {}
  TS_INLINE void moment() const { ahead->step(); }
};

inline Fetch fetch_after(const StoredShape& shape, const Group& group, int64_t moments) {
  const int64_t lines = (stored_panel_bytes(shape, group.columns) + 63) / 64;
  return {group.after, lines, (lines + moments - 1) / moments};
}

struct Nothing {
  TS_INLINE void line(const uint8_t*) const {}
};

// What the codes of one group are multiplied by and what is taken off: (steps, 64) each. Read as a whole before the codes, so that memory
// is read front to back. Columns: registers of floats, and how they are made of float16, float32 or bytes.
template <int32_t kKind, class Columns>
struct StoredHead {
  static constexpr StoredShape kShape = stored_shape(kKind);
  static constexpr int64_t kScaleBytes = kShape.floats ? 4 : 2, kMostSteps = kStoredGroup / kSubgroup;
  // Codes are multiplied as unsigned bytes: these many more than meant.
  static constexpr int32_t kMore = kShape.table == kE2M1 ? 12 : static_cast<int32_t>(kShape.offset);

  alignas(64) float multipliers[kMostSteps * kPanel], minima[kShape.minimum ? kMostSteps * kPanel : 1];

  static TS_INLINE typename Columns::Floats scale(const uint8_t* from, int64_t index) {
    if constexpr (kShape.floats) return Columns::from_f32(from + 4 * index);
    return Columns::from_f16(from + 2 * index);
  }

  // (steps, 64) numbers at `from`; of super kinds whole ones, times the panel's scales.
  template <bool kSigned, class Lines>
  static TS_INLINE const uint8_t* widen(const uint8_t* from, const uint8_t* scales, int64_t steps, const Lines& ahead, float* to) {
    constexpr int64_t kBytes = kPanel * (kShape.super ? 1 : kScaleBytes);
    for (int64_t s = 0; s < steps; ++s, from += kBytes) {
      for (int64_t line = 0; line < kBytes; line += 64) ahead.line(from + line);
      TS_UNROLL
      for (int64_t c = 0; c < kPanel; c += Columns::kCount) {
        if constexpr (kShape.super) {
          Columns::store(to + s * kPanel + c, Columns::multiply(Columns::template from_bytes<kSigned>(from + c), scale(scales, c)));
        } else {
          Columns::store(to + s * kPanel + c, scale(from, c));
        }
      }
    }
    return from;
  }

  // Returns where the codes begin.
  template <class Lines>
  TS_INLINE const uint8_t* read(const uint8_t* group, int64_t steps, const Lines& ahead) {
    const uint8_t* at = group;
    if constexpr (kShape.super) {
      at += (kShape.minimum ? 2 : 1) * kPanel * kScaleBytes;
      for (const uint8_t* line = group; line < at; line += 64) ahead.line(line);
    }
    at = widen<true>(at, group, steps, ahead, multipliers);
    if constexpr (kShape.minimum) at = widen<false>(at, group + kPanel * kScaleBytes, steps, ahead, minima);
    return at;
  }
};

// The rows after the first `rows` of x.
TS_INLINE TileRows rows_after(TileRows x, int64_t rows) {
  x.q += rows * x.q_stride;
  x.scales += rows;
  x.sub_corrections += rows * x.subgroups;
  return x;
}

}  // namespace twostroke
