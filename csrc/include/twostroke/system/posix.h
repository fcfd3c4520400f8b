// Functions that Linux and macOS share. Only the files of these two systems include it.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "twostroke/system/system.h"

namespace twostroke {
namespace {

constexpr size_t kStackBytes = 8 << 20;  // without this, macOS gives a thread half a megabyte

void* thread_main(void* opaque) {
  Thread& thread = *static_cast<Thread*>(opaque);
  thread.body(thread.arg);
  return nullptr;
}

int64_t read_clock(clockid_t clock) {
  timespec now = {};
  if (clock_gettime(clock, &now) != 0) return -1;
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

pthread_t posix_thread(const Thread& thread) { return (pthread_t)thread.handle; }  // the handle is a number or a pointer

int64_t moved(ssize_t bytes) {
  if (bytes > 0) return bytes;
  return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? kNothingNow : kConnectionGone;
}

}  // namespace

bool start_thread(Thread& thread) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t made = {};
  const bool begun = pthread_create(&made, &attributes, thread_main, &thread) == 0;
  pthread_attr_destroy(&attributes);
  thread.handle = (uintptr_t)made;
  return begun;
}

void join_thread(Thread& thread) { pthread_join(posix_thread(thread), nullptr); }
void yield_core() { sched_yield(); }
uint32_t own_process() { return static_cast<uint32_t>(getpid()); }
int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

void* aligned_memory(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void free_aligned(void* memory) { free(memory); }

Socket copy_socket(int32_t number) { return fcntl(number, F_DUPFD_CLOEXEC, 0); }
void close_socket(Socket socket) { close(static_cast<int>(socket)); }
void end_socket(Socket socket) { shutdown(static_cast<int>(socket), SHUT_RDWR); }

int64_t receive_now(Socket socket, char* to, size_t bytes) { return moved(recv(static_cast<int>(socket), to, bytes, MSG_DONTWAIT)); }

void wait_for_sockets(const SocketWait* waits, int32_t count, int64_t most_ns) {
  pollfd each[kMostWaits];
  for (int32_t i = 0; i < count; ++i) {
    const int events = (waits[i].to_send ? POLLOUT : 0) | (waits[i].to_receive ? POLLIN : 0);
    each[i] = {static_cast<int>(waits[i].socket), static_cast<short>(events), 0};
  }
  poll(each, static_cast<nfds_t>(count), static_cast<int>(most_ns / 1000000));
}

}  // namespace twostroke
