// The functions that libtwostroke_cuda.so has in addition to the part of abi.h that it shares with the CPU's libraries (ts_abi_version,
// ts_level_name, ts_run, ts_op_signature, ts_context_destroy). A context is one device: its memory, its module, and one stream. Functions
// that return int32_t return 0, a ts_status, or a ts_cuda_status; ts_cuda_error then gives the reason.
//
// The operands of ts_run on the device are values, the data, scales and bias of weights, vectors, tables and pages. Structs (ts_weight,
// ts_kv_layer) lie on the host. Indices and sequences lie on the host too, in blocks that ts_cuda_inputs announced. They are checked there,
// and kernels read the mirrors that ts_cuda_upload makes on the device.
#pragma once
#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum ts_cuda_status { TS_CUDA_NO_DRIVER = -20, TS_CUDA_NO_DEVICE = -21, TS_CUDA_OLD_DEVICE = -22, TS_CUDA_FAILED = -23, TS_CUDA_NO_KERNEL = -24, TS_CUDA_OLD_DRIVER = -25, TS_CUDA_NO_ROOM = -26 };

// clock_khz, memory_clock_khz: the highest clocks; 0 where the driver does not tell them. memory_bits: the width of the memory's bus.
typedef struct {
  char name[128];
  int32_t major, minor, multiprocessors, driver_version;
  int32_t clock_khz, memory_clock_khz, memory_bits, unused;
  int64_t free_bytes, total_bytes;
} ts_cuda_device;

// driver: the library to open, usually "libcuda.so.1".
int32_t ts_cuda_open(const char* driver, int32_t ordinal, ts_context** out);
// Loads the kernels; call it before anything runs. After a failure it may be called again with another image. image: machine code, or PTX,
// which the driver compiles; a zero byte ends it, and `bytes` counts all bytes. has: a sum of two flags. TS_CUDA_WAITS: each of its kernels
// waits by itself for the one before it, so that it may begin early. TS_CUDA_WARPGROUPS: its products of warpgroups may run.
enum { TS_CUDA_WAITS = 1, TS_CUDA_WARPGROUPS = 2 };
int32_t ts_cuda_load(ts_context*, const void* image, int64_t bytes, int32_t has);
int32_t ts_cuda_describe(ts_context*, ts_cuda_device* out);
const char* ts_cuda_error(void);  // the text of this thread's last failed call: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"

int32_t ts_cuda_allocate(ts_context*, int64_t bytes, uint64_t* address);
int32_t ts_cuda_free(ts_context*, uint64_t address);
int32_t ts_cuda_zero(ts_context*, uint64_t address, int64_t bytes);
int32_t ts_cuda_put(ts_context*, uint64_t to, const void* from, int64_t bytes);
int32_t ts_cuda_get(ts_context*, void* to, uint64_t from, int64_t bytes);  // copies after all earlier work, and waits for it
// both addresses are on the device, and the ranges do not overlap
int32_t ts_cuda_copy(ts_context*, uint64_t to, uint64_t from, int64_t bytes);
int32_t ts_cuda_wait(ts_context*);

// Does what ts_run does, but starts nothing. The collected launches run with the next call of another kind, before that call's own work, in
// one graph. So the calls of a step are collected and then sampled.
int32_t ts_cuda_collect(ts_context*, const int64_t* words, int64_t count, int64_t* ran);

// Sets how many graphs of launches are kept, at most 48. With 0, every launch runs by itself. Graphs that were kept before are dropped.
int32_t ts_cuda_graphs(ts_context*, int32_t most);

// Announces a block of inputs, which the caller keeps, one for each program that runs on the device. More than 32 give TS_CUDA_NO_ROOM.
// With 0 bytes the block is taken back, after all earlier work.
int32_t ts_cuda_inputs(ts_context*, const void* host, int64_t bytes);
// copies the first bytes of the block that begins at `host`; the caller may change the block at once
int32_t ts_cuda_upload(ts_context*, const void* host, int64_t bytes);

// Whether there are kernels for an op, by the op's number.
int32_t ts_cuda_has_op(int32_t op);
// Samples one token from each row of logits (rows, count) on the device; row r is at logits + r * stride. asked: a SampleRow for each row,
// in the inputs' block, which was uploaded. told: a SampledRow for each row, on the host. asked_bytes, told_bytes: the size of one of them.
// scale: the factor for temperature 1. terms: the terms of the series of 2^x. slot: -1, or the slot of the results. The call waits for the
// results if slot is -1. Otherwise it waits for nothing, and ts_cuda_results returns them.
int32_t ts_cuda_sample(ts_context*, const float* logits, int64_t stride, int64_t rows, int64_t count, const void* asked, int64_t asked_bytes,
                       double scale, const double* series, int32_t terms, void* told, int64_t told_bytes, int32_t slot);
// All work that is started from here on, up to ts_cuda_sample with this slot, is one step. There are 4 slots, each for one step at a time.
int32_t ts_cuda_begin_step(ts_context*, int32_t slot);
// Fills in token ids that the host does not know yet. On the device, tokens[pairs[2 i]] becomes the token of row pairs[2 i + 1] of the step
// in `slot`. tokens (rows,) and pairs (count, 2) are inputs that were uploaded. The call waits for nothing.
int32_t ts_cuda_follow(ts_context*, const int32_t* tokens, int64_t rows, const int32_t* pairs, int64_t count, int64_t told_bytes, int32_t slot);
// Waits for the results of a step, but not for work that was started after it. seconds: how long the device computed the step.
int32_t ts_cuda_results(ts_context*, int32_t slot, void* told, int64_t bytes, double* seconds);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
