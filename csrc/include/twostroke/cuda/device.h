// One device as the launching code sees it: the driver's functions, kernels, scratch memory, the mirrors of inputs.
// Knows: the driver. Must not know: ops.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/cuda_abi.h"
#include "twostroke/cuda/driver_types.h"

namespace twostroke {
namespace cuda {

struct Driver {
  void* library;
#define F(symbol, name, arguments) CUresult(*name) arguments;
  TS_CUDA_DRIVER(F)
#undef F
};

enum KernelNumber {
#define K(name, Args) kKernel_##name,
  TS_CUDA_KERNELS(K)
#undef K
      kKernels
};

constexpr int kMostInputs = 32;

// What the host writes before each step of one program, and where its mirror lies on the device; host is NULL for a free place.
struct InputBlock {
  const char* host;
  int64_t bytes;
  uint64_t mirror;
};

}  // namespace cuda
}  // namespace twostroke

struct ts_context {
  twostroke::cuda::Driver driver;
  twostroke::cuda::CUdevice device;
  bool retained;
  int32_t multiprocessors;
  twostroke::cuda::CUcontext context;
  twostroke::cuda::CUmodule module;
  twostroke::cuda::CUstream stream;
  twostroke::cuda::CUfunction kernels[twostroke::cuda::kKernels];
  uint64_t scratch;
  int64_t scratch_bytes;
  twostroke::cuda::InputBlock inputs[twostroke::cuda::kMostInputs];
};

namespace twostroke {
namespace cuda {

// Keeps the words for ts_cuda_error; returns TS_CUDA_FAILED, or TS_OK where the call succeeded.
int32_t checked(const ts_context& device, const char* call, CUresult result);
void set_error(const char* what, const char* detail);

// Starts `kernel` with a copy of args; a grid without blocks is nothing to do.
int32_t start(ts_context& device, KernelNumber kernel, int64_t blocks, int32_t threads, const void* args);

// Device memory until the next call, at 256 bytes; 0 and *status where there is none.
uint64_t scratch_of(ts_context& device, int64_t bytes, int32_t* status);

// Where the mirror of an input lies; NULL where [data, data + count) is in no block of inputs.
const int32_t* mirrored(const ts_context& device, const int32_t* data, int64_t count);

}  // namespace cuda
}  // namespace twostroke
