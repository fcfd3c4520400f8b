// What operating systems do each in their own way: threads, clocks, sleeping and waking, memory, sockets. csrc/system has a file for each
// of them, and build.py compiles the one of its target. Nothing else in csrc calls a system.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace twostroke {

// Threads. A Thread stays where it is from start to join.
struct Thread {
  void (*body)(void*);
  void* arg;
  uintptr_t handle;
};
bool start_thread(Thread& thread);
void join_thread(Thread& thread);
void yield_core();
int32_t current_cpu();  // a number that differs between CPUs; 0 where the system does not tell
int32_t usable_cpus();  // on which the calling thread may run; at least 1
uint32_t own_process();

// The clock of the work of a thread or a process: it stands while that one has no core.
typedef int64_t WorkClock;
constexpr WorkClock kNoClock = -1;  // says nothing
WorkClock own_clock();
WorkClock clock_of_thread(const Thread& thread);
WorkClock clock_of_process(uint32_t process);  // kNoClock for a process that is gone
int64_t nanoseconds(WorkClock clock);          // -1 where there is no figure
int64_t now_ns();                              // of a clock that only goes forward

// Sleeps while `word` is `seen`, until it is woken. May also return early: the caller looks at the word again.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen);
void wake(std::atomic<uint32_t>& word, int32_t count);
// The same for a word in memory that several processes map; at most `most_ns`.
void sleep_while_shared(std::atomic<uint32_t>& word, uint32_t seen, int64_t most_ns);
void wake_shared(std::atomic<uint32_t>& word);

// Memory. `alignment` is a power of two, at least that of a pointer.
void* aligned_memory(size_t alignment, size_t bytes);  // NULL where there is none
void free_aligned(void* memory);
bool into_huge_pages(void* address, size_t bytes, size_t huge_page);  // without a change to address or content
bool take_pages(void* begin, size_t bytes);                           // memory for whole pages, now

// Processors. Bits of instruction sets that no instruction of the processor itself tells.
constexpr uint32_t kArmVectors = 1, kArmDotProducts = 2, kArmMatrices = 4;
uint32_t arm_features();
bool allow_tiles();  // asks the system to keep matrix registers for this process

// Connected stream sockets, as Python numbers them.
typedef intptr_t Socket;
constexpr Socket kNoSocket = -1;
constexpr int64_t kNothingNow = 0, kConnectionGone = -1;
struct SocketWait {
  Socket socket;
  bool to_send, to_receive;
};
Socket copy_socket(int32_t number);  // one of our own; kNoSocket where that fails
void close_socket(Socket socket);
void end_socket(Socket socket);  // both directions; the socket stays open
// Bytes that went at once, kNothingNow, or kConnectionGone.
int64_t send_now(Socket socket, const char* from, size_t bytes);
int64_t receive_now(Socket socket, char* to, size_t bytes);
void wait_for_sockets(const SocketWait* waits, int32_t count, int64_t most_ns);
constexpr int32_t kMostWaits = 64;

}  // namespace twostroke
