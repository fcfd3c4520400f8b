// How a thread waits for another: a pause between two looks, a sleep until woken, the clock of a thread's own work.
// Knows: Linux. Must not know: what is waited for.
#pragma once
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace twostroke {

inline void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline int64_t nanoseconds(clockid_t clock) {
  timespec now = {};
  if (clock_gettime(clock, &now) != 0) return -1;
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

inline int64_t now_ns() { return nanoseconds(CLOCK_MONOTONIC); }

// Sleeps while `word` is `seen`, until it is woken. May also return early: the caller looks at the word again.
inline void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void wake(std::atomic<uint32_t>& word, int32_t count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace twostroke
