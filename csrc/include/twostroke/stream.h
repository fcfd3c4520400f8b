// Reads memory once, from front to back, as fast as memory delivers it. Hardware prefetchers stop at each page, so code prefetches lines,
// at distances that were measured.
//
// An Intel Xeon can read 31 GB/s of weights from memory. With a first-level prefetch 4 KiB ahead it reads 23 GB/s, with a second-level one
// 30, with both 31. For int4, whose lines take longer to compute, it reads 21 GB/s without any prefetch, and 22, 26 and 29 GB/s with these.
// Where several stretches are read in turn, each needs a smaller distance. With 4 KiB two stretches are 10% slower, and with 1 KiB four are
// 12% faster.
//
// An AMD Zen 4 is quicker with one stretch after the other, because its prefetchers run ahead of a steady reader. The figures below are for
// whole panels, as shares of the rate of a loop that only reads. The first figure is for a machine where two threads read 52 GB/s, the
// second for one where they read 31.
// int8, one row: 91 to 98% and 100% with 2.5 KiB and 0.25 KiB ahead. On the first machine, 1.5 and 0.5 KiB give 80 to 92%, and no prefetch
// 84 to 93%. 4 KiB is as good with one row, but gives 70% with three.
// int4, one row, whose lines take longer: 82 to 101% and 97 to 99% without any prefetch. Prefetches disturb the hardware's prefetchers (2.5
// KiB: 52 to 75%), and so do prefetches of its scales.
// The longer products take for a line, the farther ahead the best distance is. Two and three rows of int4 need 8 and 1 KiB (75 and 84 to
// 90%; without prefetch 69 and 61%). Four rows of int4 and more need 17 and 4 KiB, and seven rows of int8 and more 16 and 8 KiB. A distance
// between those, such as one page, is worse than either.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kFarBytes = 4096;   // memory to second-level cache
constexpr int64_t kNearBytes = 2048;  // second-level to first-level cache
constexpr int64_t kFarOfOne = 2560, kNearOfOne = 256;  // the same distances where only one stretch is read
constexpr int64_t kFarOfSome = 8192, kNearOfSome = 1024;  // the same for two and three rows of int4
constexpr int64_t kFarOfBands = 16384, kNearOfBands = 8192;  // the same where several bands of rows use each line, one after the other

// The distances from the lines that are read now to the lines that will be read later.
struct Ahead {
  int64_t far_bytes, near_bytes;

  // The place is `at` bytes into a stretch of `bytes` bytes. `after`: the address at which reading continues after it.
  template <int64_t kFar, int64_t kNear>
  __attribute__((always_inline)) static Ahead of(const uint8_t* data, int64_t bytes, const uint8_t* after, int64_t at) {
    const int64_t skip = after - data - bytes;
    return {kFar + (at + kFar >= bytes ? skip : 0), kNear + (at + kNear >= bytes ? skip : 0)};
  }

  // A prefetch of an address beyond the end does no harm.
  __attribute__((always_inline)) void prefetch(const uint8_t* line) const {
    __builtin_prefetch(line + far_bytes, 0, 2);
    __builtin_prefetch(line + near_bytes, 0, 3);
  }
};

// The same interface without prefetches, where the hardware is quickest alone.
struct Unaided {
  __attribute__((always_inline)) void prefetch(const uint8_t*) const {}
};

// Must be called once for each line that is used.
__attribute__((always_inline)) inline void prefetch_line(const uint8_t* line) { Ahead{kFarBytes, kNearBytes}.prefetch(line); }

// While many rows are multiplied by a group, the next group is fetched a few lines at a time. The hardware looks at most a page ahead, and
// only once loads begin. A fetch of all lines at once would fill the line buffers and wait.
struct Fetch {
  const uint8_t* line;
  int64_t left, each;  // counts of lines

  __attribute__((always_inline)) void step() {
    if (left <= 0) return;
    for (int64_t i = 0; i < each; ++i, line += 64) __builtin_prefetch(line, 0, 2);
    left -= each;
  }
};

// The same for several tiles of rows, one after the other. Each tile fetches an equal part.
struct FetchByTiles {
  const uint8_t* line;
  int64_t left, tiles;

  // Returns the part that the next tile fetches, divided into `steps` steps.
  __attribute__((always_inline)) Fetch next(int64_t steps) {
    const int64_t lines = (left + tiles - 1) / tiles;
    const Fetch part = {line, lines, (lines + steps - 1) / steps};
    line += 64 * lines;
    left -= lines;
    --tiles;
    return part;
  }
};

}  // namespace twostroke
