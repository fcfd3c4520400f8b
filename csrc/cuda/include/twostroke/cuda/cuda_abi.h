// What libtwostroke_cuda.so has next to the part of abi.h that it shares with the CPU's libraries (ts_abi_version, ts_level_name, ts_run,
// ts_op_signature, ts_context_destroy). A context is one device: its memory, its module, one stream. Functions that return int32_t
// return 0, a ts_status, or a ts_cuda_status; ts_cuda_error then says more.
//
// Operands of ts_run: values, weights' data, scales and bias, vectors, tables and pages lie on the device. Structs (ts_weight,
// ts_kv_layer) lie on the host. Indices and sequences lie on the host too, in blocks that ts_cuda_inputs announced: they are checked
// there, and kernels read the mirrors that ts_cuda_upload makes on the device.
#pragma once
#include "twostroke/abi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum ts_cuda_status { TS_CUDA_NO_DRIVER = -20, TS_CUDA_NO_DEVICE = -21, TS_CUDA_OLD_DEVICE = -22, TS_CUDA_FAILED = -23, TS_CUDA_NO_KERNEL = -24, TS_CUDA_OLD_DRIVER = -25, TS_CUDA_NO_ROOM = -26 };

typedef struct {
  char name[128];
  int32_t major, minor, multiprocessors, driver_version;
  int64_t free_bytes, total_bytes;
} ts_cuda_device;

// driver: the library to open, usually "libcuda.so.1".
int32_t ts_cuda_open(const char* driver, int32_t ordinal, ts_context** out);
// Before anything runs; again, with another one, where it failed. image: machine code, or PTX, which is compiled by the driver; a zero
// after it, of `bytes` in all. waits: whether each of its kernels waits by itself for the one before, so that it may begin early.
int32_t ts_cuda_load(ts_context*, const void* image, int64_t bytes, int32_t waits);
int32_t ts_cuda_describe(ts_context*, ts_cuda_device* out);
const char* ts_cuda_error(void);  // of the last call of this thread that failed: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"

int32_t ts_cuda_allocate(ts_context*, int64_t bytes, uint64_t* address);
int32_t ts_cuda_free(ts_context*, uint64_t address);
int32_t ts_cuda_zero(ts_context*, uint64_t address, int64_t bytes);
int32_t ts_cuda_put(ts_context*, uint64_t to, const void* from, int64_t bytes);
int32_t ts_cuda_get(ts_context*, void* to, uint64_t from, int64_t bytes);  // after all work before it; waits
int32_t ts_cuda_copy(ts_context*, uint64_t to, uint64_t from, int64_t bytes);  // both on the device, not overlapping
int32_t ts_cuda_wait(ts_context*);

// ts_run that starts nothing: what it collects runs with the next call of another kind, before that one, in one graph. The calls of a step
// are collected, then sampled.
int32_t ts_cuda_collect(ts_context*, const int64_t* words, int64_t count, int64_t* ran);

// How many graphs of launches are kept from now on, at most 48; 0: every launch is its own. Those kept before are dropped.
int32_t ts_cuda_graphs(ts_context*, int32_t most);

// A block of inputs, kept by the caller; one for each program that runs on the device, TS_CUDA_NO_ROOM for more than 32. Of 0 bytes: it
// is taken back, after all work before it.
int32_t ts_cuda_inputs(ts_context*, const void* host, int64_t bytes);
int32_t ts_cuda_upload(ts_context*, const void* host, int64_t bytes);  // the first bytes of the block that begins at `host`, which may change at once

// Whether there are kernels for an op, by its number.
int32_t ts_cuda_has_op(int32_t op);
// One token of each row of logits on the device (rows, count), row r at logits + r * stride. asked: a SampleRow for each in the inputs'
// block, which was uploaded; told: a SampledRow for each, on the host. asked_bytes, told_bytes: of one. scale: of temperature 1.
// terms: of the series of 2^x. slot: -1 waits for the results; from 0 on nothing waits, and ts_cuda_results asks for them.
int32_t ts_cuda_sample(ts_context*, const float* logits, int64_t stride, int64_t rows, int64_t count, const void* asked, int64_t asked_bytes,
                       double scale, const double* series, int32_t terms, void* told, int64_t told_bytes, int32_t slot);
// What is started from here on, up to ts_cuda_sample with this slot, is one step. There are 4 slots, each for one step at a time.
int32_t ts_cuda_begin_step(ts_context*, int32_t slot);
// Token ids that the host does not know yet: tokens[pairs[2 i]] = the token of row pairs[2 i + 1] of the step in `slot`, on the device.
// tokens (rows,), pairs (count, 2): inputs that were uploaded. Nothing waits.
int32_t ts_cuda_follow(ts_context*, const int32_t* tokens, int64_t rows, const int32_t* pairs, int64_t count, int64_t told_bytes, int32_t slot);
// Waits for the results of a step, but not for what was started after it. seconds: how long the device worked on it.
int32_t ts_cuda_results(ts_context*, int32_t slot, void* told, int64_t bytes, double* seconds);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
