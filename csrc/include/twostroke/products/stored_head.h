// The factors of one group's codes, and how cache lines are fetched, for levels that multiply stored codes directly.
#pragma once
#include "twostroke/products/stored.h"
#include "twostroke/stream.h"

namespace twostroke {

// The two structs below fetch lines while rows are multiplied by a group. `line` is called for each line that is read, `moment` once or
// more in each step.
//
// This one fetches lines after the one that is read (stream.h). Where the CPU's own prefetchers follow one stretch of memory, one row of
// nibbles is quickest without it; one row of codes of 6 bits is not. More rows look farther ahead, because they take longer for a line.
// kAlone: whether it is one such row on such a CPU. kNibbles: whether codes have 4 or 5 bits.
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

// This one fetches the next group. All tiles of rows that are multiplied by this group fetch equal parts of it. The CPU's own prefetchers
// stop at each page, so the kernel would wait for a group that was not fetched. With fewer rows, this wait would be a larger part of the
// whole.
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

// The factors of one group's codes, and the minima that are subtracted: (steps, 64) each. All are read before the codes, so that memory is
// read from front to back. Columns: registers of floats, and how they are made from float16, float32 or bytes.
template <int32_t kKind, class Columns>
struct StoredHead {
  static constexpr StoredShape kShape = stored_shape(kKind);
  static constexpr int64_t kScaleBytes = kShape.floats ? 4 : 2, kMostSteps = kStoredGroup / kSubgroup;
  // Codes are multiplied as unsigned bytes with this excess.
  static constexpr int32_t kMore = kShape.table == kE2M1 ? 12 : static_cast<int32_t>(kShape.offset);

  alignas(64) float multipliers[kMostSteps * kPanel], minima[kShape.minimum ? kMostSteps * kPanel : 1];

  static TS_INLINE typename Columns::Floats scale(const uint8_t* from, int64_t index) {
    if constexpr (kShape.floats) return Columns::from_f32(from + 4 * index);
    return Columns::from_f16(from + 2 * index);
  }

  // Loads (steps, 64) numbers at `from`. For super kinds they are whole numbers, which are multiplied by the panel's scales.
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

  // Loads the factors and returns the place at which the codes begin.
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

}  // namespace twostroke
