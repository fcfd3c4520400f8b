// ts_settle moves the bytes of a mapped file into huge pages without a change of their addresses. ts_populate gets memory before it is
// used. With 4 KiB pages, reading weights costs a page walk every 64 cache lines, which is a third of the bandwidth on a virtual machine.
#include "twostroke/abi.h"
#include "twostroke/system/system.h"

int32_t ts_settle(void* address, int64_t bytes) {
  constexpr int64_t kHugePage = 2 << 20;
  if (address == nullptr) return TS_BAD_POINTER;
  if (bytes <= 0 || bytes % kHugePage != 0 || reinterpret_cast<uintptr_t>(address) % kHugePage != 0) return TS_BAD_SHAPE;
  return twostroke::into_huge_pages(address, static_cast<size_t>(bytes), kHugePage) ? TS_OK : TS_NO_MEMORY;
}

int32_t ts_populate(void* address, int64_t bytes) {
  constexpr uintptr_t kPage = 4096;
  if (address == nullptr) return TS_BAD_POINTER;
  if (bytes < 0) return TS_BAD_SHAPE;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(address) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (end <= begin) return TS_OK;
  return twostroke::take_pages(reinterpret_cast<void*>(begin), end - begin) ? TS_OK : TS_NO_MEMORY;
}
