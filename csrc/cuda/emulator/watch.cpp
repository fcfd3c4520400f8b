// This file checks global memory inside a launch. A race is two accesses to one byte by two threads, where one of them writes and no
// barrier orders them. Barriers order the threads of one block; nothing orders threads of different blocks before the launch ends. The
// result does not depend on the order in which the threads happened to run.
// Kernels are compiled with -fsanitize-coverage=func,trace-loads,trace-stores, so that the compiler calls the functions below before each
// access. Pages of device memory are announced; accesses to other memory are ignored.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twostroke/cuda/machine/emulator.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr uint64_t kPageBytes = 4096, kBuckets = 1 << 16;
constexpr int64_t kSeveral = -1;

struct Byte {  // the accesses of one launch; block 0 means that there was none yet
  int64_t launch, write_block, write_stretch, read_block, read_stretch;
  int32_t writer, reader;
};

struct Page {
  uint64_t number;
  Byte* bytes;  // NULL where the place is free
};

Page pages[kBuckets];

Page& place_of(uint64_t number) {
  static Page* last = nullptr;
  if (last != nullptr && last->number == number) return *last;
  uint64_t at = number * 0x9e3779b97f4a7c15ull >> 48;
  while (pages[at].bytes != nullptr && pages[at].number != number) at = (at + 1) % kBuckets;
  if (pages[at].bytes != nullptr) last = &pages[at];
  return pages[at];
}

void found(const char* what, uint64_t address) {
  char words[160];
  snprintf(words, sizeof words, "global memory: %s, with nothing that orders them", what);
  fail(words, "address", static_cast<int64_t>(address));
}

void read_byte(Byte& byte, const Now& now, uint64_t address) {
  const bool other_block = byte.write_block != 0 && byte.write_block != now.block;
  if (other_block) found("read of what another block wrote", address);
  if (byte.write_stretch == now.stretch && byte.writer != now.thread) found("read of what another thread wrote", address);
  byte.read_block = byte.read_block == 0 || byte.read_block == now.block ? now.block : kSeveral;
  byte.reader = byte.read_stretch == now.stretch && byte.reader != now.thread ? kSeveral : now.thread;
  byte.read_stretch = now.stretch;
}

void write_byte(Byte& byte, const Now& now, uint64_t address) {
  if (byte.write_block != 0 && byte.write_block != now.block) found("write of what another block wrote", address);
  if (byte.read_block != 0 && byte.read_block != now.block) found("write of what another block read", address);
  if (byte.write_stretch == now.stretch && byte.writer != now.thread) found("write of what another thread wrote", address);
  if (byte.read_stretch == now.stretch && byte.reader != now.thread) found("write of what another thread read", address);
  byte.write_block = now.block;
  byte.writer = now.thread;
  byte.write_stretch = now.stretch;
}

void note(const void* pointer, uint64_t count, bool writes) {
  const Now now = running();
  const uint64_t first = reinterpret_cast<uint64_t>(pointer);
  for (uint64_t address = first; address < first + count; ++address) {
    Page& page = place_of(address / kPageBytes);
    if (page.bytes == nullptr) return;
    Byte& byte = page.bytes[address % kPageBytes];
    if (byte.launch != now.launch) byte = {now.launch, 0, 0, 0, 0, 0, 0};
    (writes ? write_byte : read_byte)(byte, now, address);
  }
}

}  // namespace

void watch(const void* memory, int64_t bytes) {
  const uint64_t first = reinterpret_cast<uint64_t>(memory) / kPageBytes;
  for (uint64_t number = first; number < first + static_cast<uint64_t>(bytes) / kPageBytes; ++number) {
    Page& page = place_of(number);
    if (page.bytes == nullptr) page = {number, static_cast<Byte*>(calloc(kPageBytes, sizeof(Byte)))};
  }
}

}  // namespace cuda
}  // namespace twostroke

#define HOOKS(bytes)                                                                                                     \
  extern "C" void __sanitizer_cov_load##bytes(const void* at) { twostroke::cuda::note(at, bytes, false); }                 \
  extern "C" void __sanitizer_cov_store##bytes(const void* at) { twostroke::cuda::note(at, bytes, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
