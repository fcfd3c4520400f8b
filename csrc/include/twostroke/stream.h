// Reading memory once, front to back, as fast as it comes.
// Hardware prefetchers stop at each page. Measured on weights from memory on an Intel Xeon, 31 GB/s to be had: first-level prefetch 4 KiB
// ahead 23, second-level 30, both 31; for int4, whose lines take longer to use up, 21 without any, 22, 26 and 29. Of several stretches
// read in turn, each needs less: at 4 KiB two come 10% slower, at 1 KiB four 12% faster.
// On an AMD Zen 4 one stretch after the other is quicker: its prefetchers run ahead of a reader that goes on. Measured next to a loop that
// only reads, one row, whole panels: int8, quicker than they are, 2.5 KiB and 0.25 KiB ahead 91 to 98% where two threads read 52 GB/s and
// 100% where they read 31 (1.5 and 0.5 KiB: 80 to 92%, none at all: 84 to 93%; 4 KiB: as good with one row, 70% with three). int4, of
// which each line takes longer, is quickest without any prefetch, 82 to 101 and 97 to 99%: they lead the prefetchers astray (2.5 KiB: 52
// to 75%), those of its scales too. The longer products take next to a line, the farther ahead: two and three rows of int4 8 and 1 KiB (75
// and 84 to 90%; none 69 and 61%), four and more 17 and 4 KiB, seven rows of int8 and more 16 and 8 KiB. What lies between, a page ahead,
// is worse than either.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kFarBytes = 4096;   // memory to second-level cache
constexpr int64_t kNearBytes = 2048;  // second-level to first-level cache
constexpr int64_t kFarOfOne = 2560, kNearOfOne = 256;  // where nothing but one stretch is read
constexpr int64_t kFarOfSome = 8192, kNearOfSome = 1024;  // the same by two and three rows of int4
constexpr int64_t kFarOfBands = 16384, kNearOfBands = 8192;  // the same, each line used by several bands of rows one after the other

// Where the lines are that will be read later, seen from those that are read now.
struct Ahead {
  int64_t far_bytes, near_bytes;

  // `at` bytes into a stretch of `bytes` bytes; `after`: where reading goes on after it.
  template <int64_t kFar, int64_t kNear>
  __attribute__((always_inline)) static Ahead of(const uint8_t* data, int64_t bytes, const uint8_t* after, int64_t at) {
    const int64_t skip = after - data - bytes;
    return {kFar + (at + kFar >= bytes ? skip : 0), kNear + (at + kNear >= bytes ? skip : 0)};
  }

  // Addresses beyond the end are harmless.
  __attribute__((always_inline)) void prefetch(const uint8_t* line) const {
    __builtin_prefetch(line + far_bytes, 0, 2);
    __builtin_prefetch(line + near_bytes, 0, 3);
  }
};

// The same of hardware that is left alone.
struct Unaided {
  __attribute__((always_inline)) void prefetch(const uint8_t*) const {}
};

// For each line that is used, once.
__attribute__((always_inline)) inline void prefetch_line(const uint8_t* line) { Ahead{kFarBytes, kNearBytes}.prefetch(line); }

// The group after the one that many rows are multiplied by is fetched a few lines at a time meanwhile: hardware looks no further than a
// page ahead, and only once loads begin; all at once would fill the line buffers and wait.
struct Fetch {
  const uint8_t* line;
  int64_t left, each;  // lines

  __attribute__((always_inline)) void step() {
    if (left <= 0) return;
    for (int64_t i = 0; i < each; ++i, line += 64) __builtin_prefetch(line, 0, 2);
    left -= each;
  }
};

// The same by several tiles of rows, one after the other, each of which fetches an equal part.
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
