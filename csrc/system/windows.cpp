// The functions of system.h for Windows, from version 10 on.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <winsock2.h>

#include <windows.h>

#include <limits.h>
#include <malloc.h>

#include "twostroke/system/system.h"

namespace twostroke {
namespace {

constexpr SIZE_T kStackBytes = 8 << 20;

DWORD WINAPI thread_main(void* opaque) {
  Thread& thread = *static_cast<Thread*>(opaque);
  thread.body(thread.arg);
  return 0;
}

int64_t moved(int bytes) {
  if (bytes > 0) return bytes;
  return bytes < 0 && WSAGetLastError() == WSAEWOULDBLOCK ? kNothingNow : kConnectionGone;
}

int at_once(size_t bytes) { return bytes < INT_MAX ? static_cast<int>(bytes) : INT_MAX; }

}  // namespace

bool start_thread(Thread& thread) {
  HANDLE made = CreateThread(nullptr, kStackBytes, thread_main, &thread, STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  thread.handle = reinterpret_cast<uintptr_t>(made);
  return made != nullptr;
}

void join_thread(Thread& thread) {
  HANDLE handle = reinterpret_cast<HANDLE>(thread.handle);
  WaitForSingleObject(handle, INFINITE);
  CloseHandle(handle);
}

void yield_core() { SwitchToThread(); }
int32_t current_cpu() { return static_cast<int32_t>(GetCurrentProcessorNumber()); }
uint32_t own_process() { return GetCurrentProcessId(); }

int32_t usable_cpus() {
  DWORD_PTR own = 0, all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all) == 0 || own == 0) return static_cast<int32_t>(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS));
  return __builtin_popcountll(own);
}

// The system's times of a thread advance in steps of 15 milliseconds, which is too coarse for a wait.
WorkClock own_clock() { return kNoClock; }
WorkClock clock_of_thread(const Thread&) { return kNoClock; }
WorkClock clock_of_process(uint32_t) { return kNoClock; }
int64_t nanoseconds(WorkClock) { return -1; }

int64_t now_ns() {
  LARGE_INTEGER now, ticks_of_a_second;
  QueryPerformanceFrequency(&ticks_of_a_second);
  QueryPerformanceCounter(&now);
  const int64_t seconds = now.QuadPart / ticks_of_a_second.QuadPart, rest = now.QuadPart % ticks_of_a_second.QuadPart;
  return seconds * 1000000000 + rest * 1000000000 / ticks_of_a_second.QuadPart;
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) { WaitOnAddress(&word, &seen, sizeof(seen), INFINITE); }

void wake(std::atomic<uint32_t>& word, int32_t count) {
  if (count == INT_MAX) return WakeByAddressAll(&word);
  for (int32_t i = 0; i < count; ++i) WakeByAddressSingle(&word);
}

// The system wakes by address only inside one process, so a rank looks again every millisecond.
void sleep_while_shared(std::atomic<uint32_t>& word, uint32_t seen, int64_t) {
  if (word.load() == seen) Sleep(1);
}

void wake_shared(std::atomic<uint32_t>&) {}

void* aligned_memory(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }
void free_aligned(void* memory) { _aligned_free(memory); }
bool into_huge_pages(void*, size_t, size_t) { return false; }  // large pages need a privilege that users do not have
bool take_pages(void*, size_t) { return false; }

uint32_t arm_features() {
  constexpr DWORD kDotProducts = 43, kMatrices = 66;  // the values of PF_ARM_V82_DP_... and PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE
  return kArmVectors | (IsProcessorFeaturePresent(kDotProducts) ? kArmDotProducts : 0) | (IsProcessorFeaturePresent(kMatrices) ? kArmMatrices : 0);
}

bool allow_tiles() { return false; }

Socket copy_socket(int32_t number) {
  WSAPROTOCOL_INFOW shared;
  if (WSADuplicateSocketW(static_cast<SOCKET>(number), GetCurrentProcessId(), &shared) != 0) return kNoSocket;
  const SOCKET made = WSASocketW(FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, &shared, 0, WSA_FLAG_OVERLAPPED);
  u_long on = 1;
  if (made == INVALID_SOCKET || ioctlsocket(made, FIONBIO, &on) != 0) return kNoSocket;
  return static_cast<Socket>(made);
}

void close_socket(Socket socket) { closesocket(static_cast<SOCKET>(socket)); }
void end_socket(Socket socket) { shutdown(static_cast<SOCKET>(socket), SD_BOTH); }
int64_t send_now(Socket socket, const char* from, size_t bytes) { return moved(send(static_cast<SOCKET>(socket), from, at_once(bytes), 0)); }
int64_t receive_now(Socket socket, char* to, size_t bytes) { return moved(recv(static_cast<SOCKET>(socket), to, at_once(bytes), 0)); }

void wait_for_sockets(const SocketWait* waits, int32_t count, int64_t most_ns) {
  WSAPOLLFD each[kMostWaits];
  for (int32_t i = 0; i < count; ++i) {
    const int events = (waits[i].to_send ? POLLWRNORM : 0) | (waits[i].to_receive ? POLLRDNORM : 0);
    each[i] = {static_cast<SOCKET>(waits[i].socket), static_cast<SHORT>(events), 0};
  }
  WSAPoll(each, static_cast<ULONG>(count), static_cast<INT>(most_ns / 1000000));
}

}  // namespace twostroke
