// How a thread waits for another: a pause between two looks, the clock of a thread's own work; system.h has the sleep.
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

constexpr int32_t kLooks = 64;      // pauses from one look at the clock to the next
constexpr int64_t kSureNs = 20000;    // for this long the other thread's clock is not looked at: most waits are shorter
constexpr int64_t kDoubtNs = 30000;   // from one look at the other's clock to the next
constexpr int64_t kBlindNs = 200000;  // the longest poll where the system has no figure of the other's work
constexpr int32_t kLookers = 8;       // threads that may look so often at one clock; more of them look more rarely

// Polls until what is waited for is there, or the thread that it comes from has no core, by the clock of its own work, or the time is over.
// Returns whether it is there. clock(): that of the thread. lookers: how many may do the same.
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
