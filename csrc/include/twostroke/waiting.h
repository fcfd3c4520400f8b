// How a thread waits for another one: a pause between two looks, and the clock of a thread's own work. system.h has the functions for
// sleeping.
#pragma once
#include <limits.h>
#include <stdint.h>

#include <atomic>

#include "twostroke/system/system.h"

namespace twostroke {

inline void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int32_t kLooks = 64;  // pauses between two looks at the clock
constexpr int64_t kSureNs = 20000;  // for this long the other thread's clock is not read, because most waits are shorter
constexpr int64_t kDoubtNs = 30000;  // the time between two looks at the other thread's clock
constexpr int64_t kBlindNs = 200000;  // the longest poll where the system has no figure for the other thread's work
constexpr int32_t kLookers = 8;  // the threads that may read one clock this often; if there are more, each reads it less often

// Polls until the awaited value is there or the time is over. It also ends when the thread that must write the value has no core: the clock
// of its work then stands still. Returns whether the value is there. clock(): the clock of that thread. lookers: the number of
// threads that may wait in the same way.
template <class There, class Clock>
bool spin(const There& there, const Clock& clock, int64_t most_ns, int32_t lookers) {
  const int64_t doubt_ns = kDoubtNs * (1 + lookers / kLookers);
  const int64_t began = now_ns();
  int64_t looked = 0, worked = 0;
  WorkClock of = kNoClock;
  for (;;) {
    for (int32_t i = 0; i < kLooks; ++i) {
      if (there()) return true;
      pause_a_little();
    }
    const int64_t now = now_ns();
    if (now - began > most_ns) return there();
    if (looked == 0 ? now - began < kSureNs : now - looked < doubt_ns) continue;
    const WorkClock last = of;
    const int64_t before = worked, waited = now - looked;
    of = clock();
    worked = nanoseconds(of);
    if (worked < 0 && now - began > kBlindNs) return there();
    if (looked != 0 && of == last && worked >= 0 && (worked - before) * 2 < waited) return there();
    looked = now;
  }
}

}  // namespace twostroke
