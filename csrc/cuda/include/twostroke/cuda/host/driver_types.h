// The part of the CUDA driver's C interface that this backend uses, as the driver's documentation describes it. No header of the toolkit is
// needed.
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
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUgraphExec_st* CUgraphExec;

struct CUkernelNode {  // the driver's CUDA_KERNEL_NODE_PARAMS_v2; the first version ends after `extra`
  CUfunction function;
  uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;  // a kernel of a library, where function is NULL
  CUcontext context;
};
typedef struct CUevent_st* CUevent;

constexpr CUresult kOutOfMemory = 2, kNoDevice = 100;
constexpr int32_t kMajorAttribute = 75, kMinorAttribute = 76, kMultiprocessorsAttribute = 16;
constexpr int32_t kClockAttribute = 13, kMemoryClockAttribute = 36, kMemoryBitsAttribute = 37;

// The name in the library, the name here, and the arguments.
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

// The functions for graphs. The name is the oldest one of each function with these arguments, of CUDA 10 and 11.0;
// cuGraphInstantiateWithFlags came with 11.4. Where one of them is missing there are no graphs.
#define TS_CUDA_GRAPHS(F)                                                                                              \
  F(cuGraphCreate, create, (CUgraph * graph, uint32_t flags))                                                          \
  F(cuGraphDestroy, destroy, (CUgraph graph))                                                                          \
  F(cuGraphAddKernelNode, add,                                                                                         \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* depends_on, size_t count, const CUkernelNode* params))          \
  F(cuGraphInstantiateWithFlags, instantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))           \
  F(cuGraphUpload, upload, (CUgraphExec exec, CUstream stream))                                                        \
  F(cuGraphLaunch, launch, (CUgraphExec exec, CUstream stream))                                                        \
  F(cuGraphExecKernelNodeSetParams, change, (CUgraphExec exec, CUgraphNode node, const CUkernelNode* params))          \
  F(cuGraphExecDestroy, destroy_exec, (CUgraphExec exec))

struct CUgraphEdge {  // the driver's CUgraphEdgeData
  uint8_t from_port, to_port, type, reserved[5];
};

// With this edge, a kernel may take its place before the kernel before it has ended. The kernel itself waits for that end.
constexpr CUgraphEdge kProgrammaticEdge = {1, 0, 1, {}};

// This function came with CUDA 12.3. Without it, every kernel begins after the end of the one before it.
typedef CUresult (*CUaddDependencies)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdge* edges, size_t count);
constexpr char kAddDependencies[] = "cuGraphAddDependencies_v2";

}  // namespace cuda
}  // namespace twostroke
