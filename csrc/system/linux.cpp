// The functions of system.h for Linux.
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "twostroke/system/posix.h"

namespace twostroke {

int32_t current_cpu() { return sched_getcpu(); }

int32_t usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  const int32_t count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

WorkClock own_clock() {
  thread_local clockid_t clock = 0;
  if (clock == 0) pthread_getcpuclockid(pthread_self(), &clock);
  return clock;
}

WorkClock clock_of_thread(const Thread& thread) {
  clockid_t clock = -1;
  return pthread_getcpuclockid(posix_thread(thread), &clock) == 0 ? clock : kNoClock;
}

WorkClock clock_of_process(uint32_t process) {
  clockid_t clock = -1;
  return clock_getcpuclockid(static_cast<pid_t>(process), &clock) == 0 ? clock : kNoClock;
}

int64_t nanoseconds(WorkClock clock) { return clock == kNoClock ? -1 : read_clock(static_cast<clockid_t>(clock)); }

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word, int32_t count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void sleep_while_shared(std::atomic<uint32_t>& word, uint32_t seen, int64_t most_ns) {
  const timespec bound = {most_ns / 1000000000, most_ns % 1000000000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &bound, nullptr, 0);
}

void wake_shared(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool into_huge_pages(void* address, size_t bytes, size_t huge_page) {
  void* taken = mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) return false;
  char* begin = static_cast<char*>(taken);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) & (huge_page - 1);
  if (before > 0) munmap(begin, before);
  if (before < huge_page) munmap(begin + before + bytes, huge_page - before);
  char* room = begin + before;
  bool done = madvise(room, bytes, MADV_HUGEPAGE) == 0;
  if (done) memcpy(room, address, bytes);
  done = done && mprotect(room, bytes, PROT_READ) == 0;
  // This replaces the old mapping in one step. A thread that reads meanwhile waits for it and finds the same bytes.
  done = done && mremap(room, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address;
  if (!done) munmap(room, bytes);
  return done;
}

bool take_pages(void* begin, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // the value of MADV_POPULATE_WRITE, which came with Linux 5.14
  return madvise(begin, bytes, kPopulateWrite) == 0;
}

uint32_t arm_features() {
  // the values of HWCAP_ASIMD, HWCAP_ASIMDDP and HWCAP2_I8MM
  constexpr unsigned long kAsimd = 1ul << 1, kAsimdDp = 1ul << 20, kI8mm = 1ul << 13;
  const unsigned long has = getauxval(AT_HWCAP), has2 = getauxval(AT_HWCAP2);
  return ((has & kAsimd) != 0 ? kArmVectors : 0) | ((has & kAsimdDp) != 0 ? kArmDotProducts : 0) | ((has2 & kI8mm) != 0 ? kArmMatrices : 0);
}

// Linux saves matrix registers only for processes that ask for it (arch_prctl ARCH_REQ_XCOMP_PERM, tile data). On other architectures, 158
// is not this call.
bool allow_tiles() {
  constexpr long kArchPrctl = 158, kRequest = 0x1023, kTileData = 18;
  return syscall(kArchPrctl, kRequest, kTileData) == 0;
}

int64_t send_now(Socket socket, const char* from, size_t bytes) {
  return moved(send(static_cast<int>(socket), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace twostroke
