// Functions that operating systems implement differently: threads, clocks, sleeping and waking, memory, sockets. csrc/system has a file for
// each system, and build.py compiles the one of its target. No other file in csrc calls a system.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace twostroke {

// Threads. A Thread must not move in memory from start to join.
struct Thread {
  void (*body)(void*);
  void* arg;
  uintptr_t handle;
};
bool start_thread(Thread& thread);
void join_thread(Thread& thread);
void yield_core();
int32_t current_cpu();  // a number that differs between CPUs; 0 where the system does not report it
int32_t usable_cpus();  // the CPUs on which the calling thread may run; at least 1
uint32_t own_process();

// The clock of the work of a thread or a process. It stands still while the thread or process has no core.
typedef int64_t WorkClock;
constexpr WorkClock kNoClock = -1;  // a clock without a figure
WorkClock own_clock();
WorkClock clock_of_thread(const Thread& thread);
WorkClock clock_of_process(uint32_t process);  // kNoClock for a process that is gone
int64_t nanoseconds(WorkClock clock);  // the time of a clock that only goes forward
int64_t now_ns();  // the time in nanoseconds of a clock that only goes forward

// Sleeps while `word` is `seen`, until it is woken. It may also return early, so the caller must read the word again.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen);
void wake(std::atomic<uint32_t>& word, int32_t count);
// The same for a word in memory that several processes map, for at most `most_ns`.
void sleep_while_shared(std::atomic<uint32_t>& word, uint32_t seen, int64_t most_ns);
void wake_shared(std::atomic<uint32_t>& word);

// Memory. `alignment` is a power of two, and at least the alignment of a pointer.
void* aligned_memory(size_t alignment, size_t bytes);  // NULL where there is none
void free_aligned(void* memory);
bool into_huge_pages(void* address, size_t bytes, size_t huge_page);  // moves bytes without a change of their address or content
bool take_pages(void* begin, size_t bytes);  // gets memory for whole pages now

// Processors. The bits are instruction sets that the processor reports by no instruction of its own.
constexpr uint32_t kArmVectors = 1, kArmDotProducts = 2, kArmMatrices = 4;
uint32_t arm_features();
bool allow_tiles();  // asks the system to keep matrix registers for this process

// Connected stream sockets, with the numbers that Python uses.
typedef intptr_t Socket;
constexpr Socket kNoSocket = -1;
constexpr int64_t kNothingNow = 0, kConnectionGone = -1;
struct SocketWait {
  Socket socket;
  bool to_send, to_receive;
};
Socket copy_socket(int32_t number);  // a descriptor of our own; kNoSocket where that fails
void close_socket(Socket socket);
void end_socket(Socket socket);  // ends both directions; the socket stays open
// Returns the bytes that it moved without a wait, kNothingNow, or kConnectionGone.
int64_t send_now(Socket socket, const char* from, size_t bytes);
int64_t receive_now(Socket socket, char* to, size_t bytes);
void wait_for_sockets(const SocketWait* waits, int32_t count, int64_t most_ns);
constexpr int32_t kMostWaits = 64;

}  // namespace twostroke
