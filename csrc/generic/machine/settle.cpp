// ts_settle: the bytes of a mapped file into huge pages, at the addresses where they are. ts_populate: memory ahead of its use.
// Reading weights through 4 KiB pages costs a page walk every 64 lines: on a virtual machine a third of the bandwidth.
// Knows: Linux memory calls. Must not know: what the bytes are.
#include <string.h>
#include <sys/mman.h>

#include "twostroke/abi.h"

namespace twostroke {
namespace {

constexpr int64_t kHugePage = 2 << 20;

// `bytes` of private memory at a multiple of a huge page, or NULL.
char* aligned_memory(int64_t bytes) {
  void* room = mmap(nullptr, static_cast<size_t>(bytes + kHugePage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(room);
  const int64_t before = -reinterpret_cast<intptr_t>(begin) & (kHugePage - 1);
  if (before > 0) munmap(begin, static_cast<size_t>(before));
  if (before < kHugePage) munmap(begin + before + bytes, static_cast<size_t>(kHugePage - before));
  return begin + before;
}

}  // namespace
}  // namespace twostroke

int32_t ts_settle(void* address, int64_t bytes) {
  using namespace twostroke;
  if (address == nullptr) return TS_BAD_POINTER;
  if (bytes <= 0 || bytes % kHugePage != 0 || reinterpret_cast<uintptr_t>(address) % kHugePage != 0) return TS_BAD_SHAPE;
  char* room = aligned_memory(bytes);
  if (room == nullptr) return TS_NO_MEMORY;
  const size_t size = static_cast<size_t>(bytes);
  bool done = madvise(room, size, MADV_HUGEPAGE) == 0;
  if (done) memcpy(room, address, size);
  done = done && mprotect(room, size, PROT_READ) == 0;
  // Takes the place of the old mapping in one step: a thread that reads meanwhile waits for it, and finds the same bytes.
  done = done && mremap(room, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address;
  if (!done) munmap(room, size);
  return done ? TS_OK : TS_NO_MEMORY;
}

int32_t ts_populate(void* address, int64_t bytes) {
#if !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23
#endif
  constexpr uintptr_t kPage = 4096;
  if (address == nullptr) return TS_BAD_POINTER;
  if (bytes < 0) return TS_BAD_SHAPE;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(address) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (end <= begin) return TS_OK;
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0 ? TS_OK : TS_NO_MEMORY;
}
