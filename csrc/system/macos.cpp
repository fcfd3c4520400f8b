// The functions of system.h for macOS, from version 11 on.
#include <limits.h>
#include <mach/mach.h>
#include <string.h>
#include <sys/sysctl.h>

#include "twostroke/system/posix.h"

// libc++ and the Swift runtime sleep by these functions on all these versions. os_sync_wait_on_address came only with 14.4.
extern "C" int __ulock_wait(uint32_t operation, void* address, uint64_t value, uint32_t timeout_us);
extern "C" int __ulock_wake(uint32_t operation, void* address, uint64_t value);

namespace twostroke {
namespace {

constexpr uint32_t kCompareAndWait = 1, kCompareAndWaitShared = 3, kWakeAll = 0x100;

bool has(const char* name) {
  int value = 0;
  size_t size = sizeof(value);
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

int32_t current_cpu() { return 0; }

int32_t usable_cpus() {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count < 1 ? 1 : static_cast<int32_t>(count);
}

WorkClock own_clock() { return static_cast<WorkClock>(pthread_mach_thread_np(pthread_self())); }
WorkClock clock_of_thread(const Thread& thread) { return static_cast<WorkClock>(pthread_mach_thread_np(posix_thread(thread))); }
WorkClock clock_of_process(uint32_t) { return kNoClock; }

int64_t nanoseconds(WorkClock clock) {
  if (clock == kNoClock) return -1;
  thread_basic_info_data_t found;
  mach_msg_type_number_t count = THREAD_BASIC_INFO_COUNT;
  if (thread_info(static_cast<thread_act_t>(clock), THREAD_BASIC_INFO, reinterpret_cast<thread_info_t>(&found), &count) != KERN_SUCCESS) return -1;
  const int64_t seconds = found.user_time.seconds + found.system_time.seconds;
  return seconds * 1000000000 + (found.user_time.microseconds + found.system_time.microseconds) * int64_t{1000};
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) { __ulock_wait(kCompareAndWait, &word, seen, 0); }

void wake(std::atomic<uint32_t>& word, int32_t count) {
  if (count == INT_MAX) __ulock_wake(kCompareAndWait | kWakeAll, &word, 0);
  else
    for (int32_t i = 0; i < count && __ulock_wake(kCompareAndWait, &word, 0) == 0; ++i) {
    }
}

void sleep_while_shared(std::atomic<uint32_t>& word, uint32_t seen, int64_t most_ns) {
  __ulock_wait(kCompareAndWaitShared, &word, seen, static_cast<uint32_t>(most_ns / 1000));
}

void wake_shared(std::atomic<uint32_t>& word) { __ulock_wake(kCompareAndWaitShared | kWakeAll, &word, 0); }

bool into_huge_pages(void*, size_t, size_t) { return false; }  // the system has no such pages for mapped files
bool take_pages(void*, size_t) { return false; }

uint32_t arm_features() {
  return kArmVectors | (has("hw.optional.arm.FEAT_DotProd") ? kArmDotProducts : 0) | (has("hw.optional.arm.FEAT_I8MM") ? kArmMatrices : 0);
}

bool allow_tiles() { return false; }

int64_t send_now(Socket socket, const char* from, size_t bytes) {
  const int on = 1;
  // a connection that is gone must give an error and not a signal
  setsockopt(static_cast<int>(socket), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
  return moved(send(static_cast<int>(socket), from, bytes, MSG_DONTWAIT));
}

}  // namespace twostroke
