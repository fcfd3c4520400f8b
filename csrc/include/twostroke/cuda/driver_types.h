// The part of the CUDA driver's C interface that is used, as its documentation gives it: no header of the toolkit is needed.
// Knows: names, arguments, numbers. Must not know: what calls them.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace twostroke {
namespace cuda {

typedef int32_t CUresult;  // 0 for success
typedef int32_t CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;

constexpr CUresult kOutOfMemory = 2, kNoDevice = 100;
constexpr int32_t kMajorAttribute = 75, kMinorAttribute = 76, kMultiprocessorsAttribute = 16;

// name in the library, name here, arguments
#define TS_CUDA_DRIVER(F)                                                                                              \
  F(cuInit, init, (uint32_t flags))                                                                                    \
  F(cuDriverGetVersion, version, (int32_t * version))                                                                  \
  F(cuGetErrorName, error_name, (CUresult error, const char** name))                                                   \
  F(cuDeviceGetCount, device_count, (int32_t * count))                                                                 \
  F(cuDeviceGet, device, (CUdevice * device, int32_t ordinal))                                                         \
  F(cuDeviceGetName, device_name, (char* name, int32_t length, CUdevice device))                                       \
  F(cuDeviceGetAttribute, attribute, (int32_t * value, int32_t attribute, CUdevice device))                            \
  F(cuDevicePrimaryCtxRetain, retain, (CUcontext * context, CUdevice device))                                          \
  F(cuDevicePrimaryCtxRelease_v2, release, (CUdevice device))                                                          \
  F(cuCtxSetCurrent, set_current, (CUcontext context))                                                                 \
  F(cuModuleLoadData, load_module, (CUmodule * module, const void* image))                                             \
  F(cuModuleUnload, unload_module, (CUmodule module))                                                                  \
  F(cuModuleGetFunction, get_function, (CUfunction * function, CUmodule module, const char* name))                     \
  F(cuMemGetInfo_v2, memory_info, (size_t * free_bytes, size_t * total_bytes))                                         \
  F(cuMemAlloc_v2, allocate, (CUdeviceptr * address, size_t bytes))                                                    \
  F(cuMemFree_v2, free_memory, (CUdeviceptr address))                                                                  \
  F(cuMemcpyHtoDAsync_v2, copy_up, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                  \
  F(cuMemcpyDtoHAsync_v2, copy_down, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                      \
  F(cuMemcpyDtoDAsync_v2, copy_across, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))              \
  F(cuMemsetD8Async, set_bytes, (CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream))                        \
  F(cuStreamCreate, create_stream, (CUstream * stream, uint32_t flags))                                                \
  F(cuStreamDestroy_v2, destroy_stream, (CUstream stream))                                                             \
  F(cuStreamSynchronize, synchronize, (CUstream stream))                                                               \
  F(cuMemHostAlloc, allocate_pinned, (void** memory, size_t bytes, uint32_t flags))                                    \
  F(cuMemFreeHost, free_pinned, (void* memory))                                                                        \
  F(cuEventCreate, create_event, (CUevent * event, uint32_t flags))                                                    \
  F(cuEventDestroy_v2, destroy_event, (CUevent event))                                                                 \
  F(cuEventRecord, record, (CUevent event, CUstream stream))                                                           \
  F(cuEventSynchronize, wait_event, (CUevent event))                                                                   \
  F(cuEventElapsedTime, elapsed, (float* milliseconds, CUevent begin, CUevent end))                                    \
  F(cuLaunchKernel, launch,                                                                                            \
    (CUfunction function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, uint32_t block_y,       \
     uint32_t block_z, uint32_t shared_bytes, CUstream stream, void** arguments, void** extra))

}  // namespace cuda
}  // namespace twostroke
