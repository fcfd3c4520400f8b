// The device of a ts_context: the driver's library, which is opened when it is needed, the device's memory and its module.
#include "twostroke/cuda/host/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

thread_local char last_error[512] = "";

constexpr int32_t kLeastMajor = 8;  // the compute capability must be at least this, because the PTX is for sm_80
constexpr int32_t kLeastVersion = 11000;  // the driver must have at least this version of CUDA, because the PTX has version 7.0
constexpr int64_t kAlignment = 256;

int32_t open_driver(const char* path, Driver& driver) {
  driver.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (driver.library == nullptr) {
    set_error(path, dlerror());
    return TS_CUDA_NO_DRIVER;
  }
#define F(symbol, name, arguments)                                                             \
  driver.name = reinterpret_cast<CUresult(*) arguments>(dlsym(driver.library, #symbol));       \
  if (driver.name == nullptr) {                                                                \
    set_error(#symbol, "the driver's library lacks this function");                            \
    return TS_CUDA_OLD_DRIVER;                                                                 \
  }
  TS_CUDA_DRIVER(F)
#undef F
  return TS_OK;
}

int32_t check_driver(const ts_context& device) {
  int32_t version = 0;
  const int32_t status = checked(device, "cuDriverGetVersion", device.driver.version(&version));
  if (status != TS_OK || version >= kLeastVersion) return status;
  char words[96];
  snprintf(words, sizeof words, "%d.%d, and at least %d.%d is needed", version / 1000, version % 1000 / 10, kLeastVersion / 1000,
           kLeastVersion % 1000 / 10);
  set_error("the newest CUDA that it supports", words);
  return TS_CUDA_OLD_DRIVER;
}

int32_t find_device(ts_context& device, int32_t ordinal) {
  int32_t status = checked(device, "cuInit", device.driver.init(0)), count = 0, major = 0, minor = 0;
  if (status != TS_OK) return TS_CUDA_NO_DEVICE;
  status = checked(device, "cuDeviceGetCount", device.driver.device_count(&count));
  if (status == TS_OK && (ordinal < 0 || ordinal >= count)) {
    char words[64];
    snprintf(words, sizeof words, "the driver has %d, numbered from 0", count);
    set_error("there is no such device", words);
    return TS_CUDA_NO_DEVICE;
  }
  if (status == TS_OK) status = checked(device, "cuDeviceGet", device.driver.device(&device.device, ordinal));
  if (status == TS_OK) status = checked(device, "cuDeviceGetAttribute", device.driver.attribute(&major, kMajorAttribute, device.device));
  if (status == TS_OK) status = checked(device, "cuDeviceGetAttribute", device.driver.attribute(&minor, kMinorAttribute, device.device));
  const CUresult counted = device.driver.attribute(&device.multiprocessors, kMultiprocessorsAttribute, device.device);
  if (status == TS_OK) status = checked(device, "cuDeviceGetAttribute", counted);
  if (status != TS_OK || major >= kLeastMajor) return status;
  char words[96];
  snprintf(words, sizeof words, "its compute capability is %d.%d, and at least %d.0 is needed", major, minor, kLeastMajor);
  set_error("the device is too old", words);
  return TS_CUDA_OLD_DEVICE;
}

int32_t load_kernels(ts_context& device, const void* image) {
  static const char* const kNames[] = {
#define K(name, Args) "ts_kernel_" #name,
      TS_CUDA_KERNELS(K)
#undef K
  };
  int32_t status = checked(device, "cuModuleLoadData", device.driver.load_module(&device.module, image));
  for (int i = 0; i < kKernels && status == TS_OK; ++i)
    status = checked(device, kNames[i], device.driver.get_function(&device.kernels[i], device.module, kNames[i]));
  return status;
}

int32_t open_all(ts_context& device, const char* driver, int32_t ordinal) {
  int32_t status = open_driver(driver, device.driver);
  if (status == TS_OK) status = check_driver(device);
  if (status == TS_OK) status = find_device(device, ordinal);
  if (status == TS_OK) status = checked(device, "cuDevicePrimaryCtxRetain", device.driver.retain(&device.context, device.device));
  if (status != TS_OK) return status;
  device.retained = true;
  status = checked(device, "cuCtxSetCurrent", device.driver.set_current(device.context));
  return status == TS_OK ? checked(device, "cuStreamCreate", device.driver.create_stream(&device.stream, 0)) : status;
}

}  // namespace

void set_error(const char* what, const char* detail) { snprintf(last_error, sizeof last_error, "%s: %s", what, detail == nullptr ? "" : detail); }

int32_t checked(const ts_context& device, const char* call, CUresult result) {
  if (result == 0) return TS_OK;
  const char* name = nullptr;
  if (device.driver.error_name == nullptr || device.driver.error_name(result, &name) != 0 || name == nullptr) name = "an error without a name";
  set_error(call, name);
  return result == kOutOfMemory ? TS_NO_MEMORY : TS_CUDA_FAILED;
}

// The driver's context is bound to the calling thread, because different threads build and step an engine.
int32_t begin(ts_context* device) {
  if (device == nullptr) return TS_BAD_POINTER;
  const int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  const Held held(*device);
  return status == TS_OK && device->collected.count > 0 ? run_collected(*device) : status;
}

uint64_t scratch_of(ts_context& device, int64_t bytes, int32_t* status) {
  *status = TS_OK;
  if (bytes <= device.scratch_bytes) return device.scratch;
  *status = launch_each(device);  // the collected launches have the old address
  // the call waits for the work that uses the memory
  if (*status == TS_OK && device.scratch != 0) *status = ts_cuda_free(&device, device.scratch);
  if (*status != TS_OK) return 0;
  drop_graphs(device);
  device.scratch = 0;
  device.scratch_bytes = 0;
  *status = ts_cuda_allocate(&device, bytes, &device.scratch);
  if (*status == TS_OK) device.scratch_bytes = bytes;
  return device.scratch;
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

const char* ts_cuda_error(void) { return last_error; }
int32_t ts_abi_version(void) { return TS_ABI_VERSION; }
const char* ts_level_name(void) { return "cuda"; }

int32_t ts_cuda_open(const char* driver, int32_t ordinal, ts_context** out) {
  if (driver == nullptr || out == nullptr) return TS_BAD_POINTER;
  *out = nullptr;
  ts_context* device = static_cast<ts_context*>(calloc(1, sizeof(ts_context)));
  if (device == nullptr) return TS_NO_MEMORY;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&device->lock, &kind);
  pthread_mutexattr_destroy(&kind);
  const int32_t status = open_all(*device, driver, ordinal);
  if (status != TS_OK) {
    ts_context_destroy(device);
    return status;
  }
  *out = device;
  return TS_OK;
}

int32_t ts_cuda_load(ts_context* device, const void* image, int64_t bytes, int32_t has) {
  const int32_t status = begin(device);
  if (status != TS_OK) return status;
  if (image == nullptr) return TS_BAD_POINTER;
  const char* text = static_cast<const char*>(image);
  if (device->module != nullptr || bytes < 1 || text[bytes - 1] != 0) return TS_BAD_FORMAT;  // the driver reads up to a zero byte
  find_graphs(*device, (has & TS_CUDA_WAITS) != 0);
  device->has_warpgroups = (has & TS_CUDA_WARPGROUPS) != 0;
  const int32_t loaded = load_kernels(*device, image);
  if (loaded != TS_OK && device->module != nullptr) {
    device->driver.unload_module(device->module);
    device->module = nullptr;
  }
  return loaded;
}

void ts_context_destroy(ts_context* device) {
  if (device == nullptr) return;
  const Driver& driver = device->driver;
  if (device->retained && driver.set_current(device->context) == 0) {
    if (device->stream != nullptr) driver.synchronize(device->stream);
    drop_graphs(*device);
    if (device->scratch != 0) driver.free_memory(device->scratch);
    for (const InputBlock& block : device->inputs)
      if (block.host != nullptr) driver.free_memory(block.mirror);
    close_results(*device);
    close_stages(*device);
    if (device->module != nullptr) driver.unload_module(device->module);
    if (device->stream != nullptr) driver.destroy_stream(device->stream);
  }
  if (device->retained) driver.release(device->device);
  free(device->collected.data);
  pthread_mutex_destroy(&device->lock);
  free(device);  // the driver's library stays open, because it may not be closed safely
}

int32_t ts_cuda_describe(ts_context* device, ts_cuda_device* out) {
  int32_t status = begin(device);
  if (status != TS_OK || out == nullptr) return status != TS_OK ? status : TS_BAD_POINTER;
  const Driver& driver = device->driver;
  memset(out, 0, sizeof *out);
  size_t free_bytes = 0, total_bytes = 0;
  status = checked(*device, "cuDeviceGetName", driver.device_name(out->name, sizeof out->name, device->device));
  if (status == TS_OK) status = checked(*device, "cuDriverGetVersion", driver.version(&out->driver_version));
  const struct Asked {
    int32_t* to;
    int32_t attribute;
  } asked[] = {{&out->major, kMajorAttribute}, {&out->minor, kMinorAttribute}};
  for (const auto& each : asked)
    if (status == TS_OK) status = checked(*device, "cuDeviceGetAttribute", driver.attribute(each.to, each.attribute, device->device));
  const Asked told[] = {{&out->clock_khz, kClockAttribute}, {&out->memory_clock_khz, kMemoryClockAttribute}, {&out->memory_bits, kMemoryBitsAttribute}};
  for (const auto& each : told)
    if (driver.attribute(each.to, each.attribute, device->device) != 0) *each.to = 0;  // newer drivers may not tell it
  if (status == TS_OK) status = checked(*device, "cuMemGetInfo", driver.memory_info(&free_bytes, &total_bytes));
  out->multiprocessors = device->multiprocessors;
  out->free_bytes = static_cast<int64_t>(free_bytes);
  out->total_bytes = static_cast<int64_t>(total_bytes);
  return status;
}

int32_t ts_cuda_allocate(ts_context* device, int64_t bytes, uint64_t* address) {
  const int32_t status = begin(device);
  if (status != TS_OK) return status;
  if (bytes < 0) return TS_BAD_SHAPE;
  const size_t rounded = static_cast<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment);
  return checked(*device, "cuMemAlloc", device->driver.allocate(address, rounded == 0 ? kAlignment : rounded));
}

int32_t ts_cuda_free(ts_context* device, uint64_t address) {
  const int32_t status = begin(device);
  return status != TS_OK ? status : checked(*device, "cuMemFree", device->driver.free_memory(address));
}

int32_t ts_cuda_zero(ts_context* device, uint64_t address, int64_t bytes) {
  const int32_t status = begin(device);
  if (status != TS_OK || bytes == 0) return status;
  return checked(*device, "cuMemsetD8Async", device->driver.set_bytes(address, 0, static_cast<size_t>(bytes), device->stream));
}

int32_t ts_cuda_put(ts_context* device, uint64_t to, const void* from, int64_t bytes) {
  const int32_t status = begin(device);
  if (status != TS_OK || bytes == 0) return status;
  return checked(*device, "cuMemcpyHtoDAsync", device->driver.copy_up(to, from, static_cast<size_t>(bytes), device->stream));
}

int32_t ts_cuda_get(ts_context* device, void* to, uint64_t from, int64_t bytes) {
  int32_t status = begin(device);
  if (status != TS_OK || bytes == 0) return status;
  status = checked(*device, "cuMemcpyDtoHAsync", device->driver.copy_down(to, from, static_cast<size_t>(bytes), device->stream));
  return status == TS_OK ? ts_cuda_wait(device) : status;
}

int32_t ts_cuda_copy(ts_context* device, uint64_t to, uint64_t from, int64_t bytes) {
  const int32_t status = begin(device);
  if (status != TS_OK || bytes == 0 || to == from) return status;
  return checked(*device, "cuMemcpyDtoDAsync", device->driver.copy_across(to, from, static_cast<size_t>(bytes), device->stream));
}

int32_t ts_cuda_wait(ts_context* device) {
  const int32_t status = begin(device);
  return status != TS_OK ? status : checked(*device, "cuStreamSynchronize", device->driver.synchronize(device->stream));
}
