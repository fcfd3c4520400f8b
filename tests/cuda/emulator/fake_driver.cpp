// A replacement for libcuda.so.1: the functions of driver_types.h, over the emulator and the kernels compiled for this CPU.
//
// As on a GPU, work on a stream waits. Launches and copies run when the stream is synchronized, and a launch has the arguments that it had
// when it was queued. Only kernels and copies can access device memory. For all other code its pages have no access, and a page without
// access lies after each allocation. Graphs are in fake_graphs.cpp.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "twostroke/cuda/arguments.h"
#include "fake_driver.h"
#include "twostroke/cuda/machine/emulator.h"

using namespace twostroke::cuda;
using namespace fake_driver;

#define K(name, Args) extern "C" void ts_kernel_##name(const void*);
TS_CUDA_KERNELS(K)
#undef K

namespace {

constexpr size_t kPage = 4096, kMostAllocations = 4096, kMostWork = 1 << 16, kMostPinned = 64;
constexpr CUresult kFull = 3, kNotFound = 500, kInvalidImage = 200;

const Entry kEntries[] = {
#define K(name, Args) {"ts_kernel_" #name, ts_kernel_##name, sizeof(Args)},
    TS_CUDA_KERNELS(K)
#undef K
};

struct Allocation {  // room: the beginning of its pages; NULL for a free entry
  CUdeviceptr address;
  size_t bytes, mapped;
  char* room;
};

struct Work {
  enum { kUp, kDown, kFill, kLaunch, kMark } kind;
  void *to, *kept;  // kept: the data that was given when the work was queued
  const void* from;
  size_t bytes;
  uint8_t value;
  const Entry* entry;
  uint32_t grid, block;
  uint64_t seed;
};

struct Event {
  double at_s;
};

struct Pinned {
  char* memory;
  size_t bytes;
};

struct Fake {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  Allocation memory[kMostAllocations];
  Work queue[kMostWork];
  size_t queued;
  Pinned pinned[kMostPinned];
  uint64_t seed;
  size_t limit = size_t{1} << 30;
  int32_t devices = 1, major = 9, minor = 0, version = 13000;
  char error[512], failing[64], target[16];
  int64_t fail_after;
} fake;

struct Held {
  Held() { pthread_mutex_lock(&fake.lock); }
  ~Held() { pthread_mutex_unlock(&fake.lock); }
};

void allow(int protection) {
  for (const Allocation& each : fake.memory)
    if (each.room != nullptr) mprotect(each.room, each.mapped - kPage, protection);
}

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

CUresult run_work(const Work& work) {
  switch (work.kind) {
    case Work::kUp: memcpy(work.to, work.kept == nullptr ? work.from : work.kept, work.bytes); return 0;
    case Work::kDown: memcpy(work.to, work.from, work.bytes); return 0;
    case Work::kFill: memset(work.to, work.value, work.bytes); return 0;
    case Work::kMark: static_cast<Event*>(work.to)->at_s = now_s(); return 0;
    default: break;
  }
  const char* wrong = run_grid(work.entry->kernel, work.kept, work.grid, static_cast<int32_t>(work.block), work.seed);
  if (wrong == nullptr) return 0;
  snprintf(fake.error, sizeof fake.error, "%s: %s", work.entry->name, wrong);
  return kLaunchFailed;
}

// Runs the first `count` pieces of work; the others wait.
CUresult run_queue(size_t count) {
  allow(PROT_READ | PROT_WRITE);
  CUresult found = 0;
  for (size_t i = 0; i < count; ++i) {
    if (found == 0) found = run_work(fake.queue[i]);
    free(fake.queue[i].kept);
  }
  fake.queued -= count;
  memmove(fake.queue, fake.queue + count, fake.queued * sizeof(Work));
  allow(PROT_NONE);
  return found;
}

bool is_pinned(const void* memory) {
  for (const Pinned& each : fake.pinned)
    if (each.memory != nullptr && memory >= each.memory && memory < each.memory + each.bytes) return true;
  return false;
}

CUresult put(Work work, const void* given, size_t bytes) {
  if (fake.queued == kMostWork) return kFull;
  if (bytes > 0) {
    work.kept = malloc(bytes);
    memcpy(work.kept, given, bytes);
  }
  fake.queue[fake.queued++] = work;
  return 0;
}

bool lies_in_device_memory(CUdeviceptr address, size_t bytes) {
  for (const Allocation& each : fake.memory)
    if (each.room != nullptr && address >= each.address && address + bytes <= each.address + each.bytes) return true;
  return false;
}

}  // namespace

namespace fake_driver {

Counts counts;

bool fails(const char* call) { return strcmp(fake.failing, call) == 0 && --fake.fail_after < 0; }

bool fails_once(const char* call) {
  const bool found = fails(call);
  if (found) fake.failing[0] = 0;
  return found;
}

CUresult put_launch(const Entry* entry, uint32_t grid, uint32_t block, const void* arguments) {
  const Held held;
  Work work = {};
  work.kind = Work::kLaunch;
  work.entry = entry;
  work.grid = grid;
  work.block = block;
  work.seed = fake.seed * 1000003 + ++counts.launches;
  return put(work, arguments, entry->argument_bytes);
}

}  // namespace fake_driver

extern "C" {

// For tests.
void fake_reset(uint64_t seed, size_t limit, int32_t devices) {
  fake.seed = seed;
  fake.limit = limit;
  fake.devices = devices;
  fake.major = 9;
  fake.minor = 0;
  fake.version = 13000;
  Counts held = {};
  held.used = counts.used;
  held.graphs_held = counts.graphs_held;
  counts = held;
  fake.error[0] = fake.failing[0] = 0;
}
void fake_describe(int32_t major, int32_t minor, int32_t version) {
  fake.major = major;
  fake.minor = minor;
  fake.version = version;
}
void fake_orders(uint64_t seed) { fake.seed = seed; }
void fake_fail(const char* call, int64_t after) {
  snprintf(fake.failing, sizeof fake.failing, "%s", call);
  fake.fail_after = after;
}
#define C(name) uint64_t fake_##name() { return counts.name; }
FAKE_COUNTS(C)
#undef C
const char* fake_target() { return fake.target; }
const char* fake_error() { return fake.error; }

CUresult cuInit(uint32_t) { return fails("cuInit") ? 999 : 0; }
CUresult cuDriverGetVersion(int32_t* version) { return *version = fake.version, 0; }
CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
CUresult cuDeviceGetCount(int32_t* count) { return *count = fake.devices, 0; }
CUresult cuDeviceGet(CUdevice* device, int32_t ordinal) {
  *device = ordinal;
  return ordinal < fake.devices ? 0 : 101;
}
CUresult cuDeviceGetName(char* name, int32_t length, CUdevice device) {
  snprintf(name, static_cast<size_t>(length), "Emulated device %d", device);
  return 0;
}
CUresult cuDeviceGetAttribute(int32_t* value, int32_t attribute, CUdevice) {
  // With an even seed there is one multiprocessor, so that blocks go through many tiles; else as many as an H100 has.
  const int32_t multiprocessors = fake.seed % 2 == 0 ? 1 : 132;
  const bool tells = fake.seed % 2 != 0;
  if (attribute == kClockAttribute) return *value = 1980000, tells ? 0 : kInvalid;
  if (attribute == kMemoryClockAttribute) return *value = 3201000, tells ? 0 : kInvalid;
  if (attribute == kMemoryBitsAttribute) return *value = 6144, tells ? 0 : kInvalid;
  *value = attribute == kMajorAttribute ? fake.major : attribute == kMinorAttribute ? fake.minor : multiprocessors;
  return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return fails("cuDevicePrimaryCtxRetain") ? kOutOfMemory : (*context = reinterpret_cast<CUcontext>(&fake), 0); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
CUresult cuCtxSetCurrent(CUcontext) { return 0; }
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  *module = reinterpret_cast<CUmodule>(&fake);
  const char* target = strstr(static_cast<const char*>(image), ".target ");
  const bool is_code = memcmp(image, "\177ELF", 4) == 0;
  if (is_code) snprintf(fake.target, sizeof fake.target, "machine code");
  const bool is_known = is_code || (target != nullptr && sscanf(target, ".target %15s", fake.target) == 1);
  return is_known && !fails_once("cuModuleLoadData") ? 0 : kInvalidImage;
}
CUresult cuModuleUnload(CUmodule) { return 0; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  if (fails_once("cuModuleGetFunction")) return kNotFound;
  for (const Entry& entry : kEntries) {
    if (strcmp(entry.name, name) != 0) continue;
    *function = reinterpret_cast<CUfunction>(const_cast<Entry*>(&entry));
    return 0;
  }
  return kNotFound;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = fake.limit;
  *free_bytes = fake.limit - counts.used;
  return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const Held held;
  if (bytes == 0) return kInvalid;
  if (fails("cuMemAlloc") || counts.used + bytes > fake.limit) return kOutOfMemory;
  const size_t mapped = (bytes + kPage - 1) / kPage * kPage + kPage, rounded = (bytes + 255) / 256 * 256;
  Allocation* entry = nullptr;
  for (Allocation& each : fake.memory)
    if (each.room == nullptr && entry == nullptr) entry = &each;
  void* room = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (entry == nullptr || room == MAP_FAILED) return kOutOfMemory;
  char* start = static_cast<char*>(room) + (mapped - kPage - rounded);
  *address = reinterpret_cast<CUdeviceptr>(start);
#if defined(TS_WATCHED)
  watch(room, static_cast<int64_t>(mapped));
#endif
  *entry = {*address, bytes, mapped, static_cast<char*>(room)};
  counts.used += bytes;
  return 0;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  const Held held;
  const CUresult status = run_queue(fake.queued);
  for (Allocation& each : fake.memory) {
    if (each.room == nullptr || each.address != address) continue;
    munmap(each.room, each.mapped);
    counts.used -= each.bytes;
    each.room = nullptr;
    return status;
  }
  return kInvalid;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  const Held held;
  if (!lies_in_device_memory(to, bytes)) return kInvalid;
  Work work = {};
  work.kind = Work::kUp;
  work.to = reinterpret_cast<void*>(to);
  work.bytes = bytes;
  work.from = from;
  ++counts.copies_up;
  return is_pinned(from) ? put(work, nullptr, 0) : put(work, from, bytes);  // pinned memory is read when the copy is done
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  const Held held;
  if (!lies_in_device_memory(from, bytes)) return kInvalid;
  Work work = {};
  work.kind = Work::kDown;
  work.to = to;
  work.from = reinterpret_cast<const void*>(from);
  work.bytes = bytes;
  ++counts.copies_down;
  return put(work, nullptr, 0);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  const Held held;
  if (!lies_in_device_memory(to, bytes) || !lies_in_device_memory(from, bytes)) return kInvalid;
  Work work = {};
  work.kind = Work::kDown;  // a copy from the device, which here ends on the device
  work.to = reinterpret_cast<void*>(to);
  work.from = reinterpret_cast<const void*>(from);
  work.bytes = bytes;
  return put(work, nullptr, 0);
}
CUresult cuMemsetD8Async(CUdeviceptr to, uint8_t value, size_t bytes, CUstream) {
  const Held held;
  if (!lies_in_device_memory(to, bytes)) return kInvalid;
  Work work = {};
  work.kind = Work::kFill;
  work.to = reinterpret_cast<void*>(to);
  work.value = value;
  work.bytes = bytes;
  return put(work, nullptr, 0);
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, uint32_t) {
  const Held held;
  for (Pinned& each : fake.pinned) {
    if (each.memory != nullptr) continue;
    each = {static_cast<char*>(malloc(bytes)), bytes};
    *memory = each.memory;
    return 0;
  }
  return kOutOfMemory;
}
CUresult cuMemFreeHost(void* memory) {
  const Held held;
  const CUresult status = run_queue(fake.queued);
  for (Pinned& each : fake.pinned)
    if (each.memory == memory) each = {};
  free(memory);
  return status;
}
CUresult cuEventCreate(CUevent* event, uint32_t) { return *event = static_cast<CUevent>(calloc(1, sizeof(Event))), 0; }
CUresult cuEventDestroy_v2(CUevent event) {
  const Held held;
  const CUresult status = run_queue(fake.queued);
  free(event);
  return status;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  const Held held;
  Work work = {};
  work.kind = Work::kMark;
  work.to = event;
  return put(work, nullptr, 0);
}
CUresult cuEventSynchronize(CUevent event) {
  const Held held;
  ++counts.waits;
  size_t count = fake.queued;
  while (count > 0 && !(fake.queue[count - 1].kind == Work::kMark && fake.queue[count - 1].to == event)) --count;
  return run_queue(count);
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  *milliseconds = static_cast<float>(1e3 * (reinterpret_cast<Event*>(end)->at_s - reinterpret_cast<Event*>(begin)->at_s));
  return 0;
}
CUresult cuStreamCreate(CUstream* stream, uint32_t) { return *stream = reinterpret_cast<CUstream>(&fake), 0; }
CUresult cuStreamDestroy_v2(CUstream) { return 0; }
CUresult cuStreamSynchronize(CUstream) {
  const Held held;
  ++counts.waits;
  return run_queue(fake.queued);
}
CUresult cuLaunchKernel(CUfunction function, uint32_t grid, uint32_t grid_y, uint32_t grid_z, uint32_t block, uint32_t block_y,
                        uint32_t block_z, uint32_t shared_bytes, CUstream, void** arguments, void** extra) {
  if (grid_y * grid_z * block_y * block_z != 1 || shared_bytes != 0 || extra != nullptr) return kInvalid;
  if (fails("cuLaunchKernel")) return kLaunchFailed;
  return put_launch(reinterpret_cast<const Entry*>(function), grid, block, arguments[0]);
}

}  // extern "C"
