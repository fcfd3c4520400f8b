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

constexpr int kResultSlots = 4, kStages = 2;

// Results of one step, on the device and in pinned memory of the host; when the device began that step and when the results were here.
struct ResultSlot {
  uint64_t there;
  void* here;
  int64_t room, bytes;
  CUevent begun, ended;
};

// Pinned memory from which inputs are copied up; the copy has read it once `read` has passed.
struct Stage {
  void* memory;
  int64_t room;
  CUevent read;
};

}  // namespace cuda
}  // namespace twostroke

struct ts_context {
  twostroke::cuda::Driver driver;
  twostroke::cuda::CUdevice device;
  bool retained;
  twostroke::cuda::CUcontext context;
  twostroke::cuda::CUmodule module;
  twostroke::cuda::CUstream stream;
  twostroke::cuda::CUfunction kernels[twostroke::cuda::kKernels];
  uint64_t scratch;
  int64_t scratch_bytes;
  twostroke::cuda::InputBlock inputs[twostroke::cuda::kMostInputs];
  twostroke::cuda::ResultSlot results[twostroke::cuda::kResultSlots];
  twostroke::cuda::Stage stages[twostroke::cuda::kStages];
  int32_t next_stage;
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

// Where the device writes results of a slot, and that all of them are written: then they come down, without a wait.
uint64_t results_of(ts_context& device, int32_t slot, int64_t bytes, int32_t* status);
int32_t end_results(ts_context& device, int32_t slot, int64_t bytes);
void close_results(ts_context& device);

// Copies inputs up from pinned memory, so that the host does not wait for the device; `from` may change at once.
int32_t copy_up_staged(ts_context& device, uint64_t to, const void* from, int64_t bytes);
void close_stages(ts_context& device);

// Pinned memory of at least so many bytes in place of what is there, which nothing uses any more.
int32_t pinned_room(ts_context& device, void** memory, int64_t* room, int64_t bytes);

// Where the mirror of an input lies; NULL where [data, data + count) is in no block of inputs.
const int32_t* mirrored(const ts_context& device, const int32_t* data, int64_t count);

}  // namespace cuda
}  // namespace twostroke
