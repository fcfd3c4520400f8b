// ts_run on a device. It goes through the words of a step's calls, collects the kernels of each call in order, and starts them on one
// stream. It waits for nothing.
#include "twostroke/cuda/host/product.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

typedef int32_t (*Launcher)(ts_context&, const int64_t* words);

template <typename Args>
Launcher find_launch() {
  int32_t (*const found)(ts_context&, const Args&) = &launch;
  if (found == nullptr) return nullptr;
  return [](ts_context& device, const int64_t* words) { return launch(device, *reinterpret_cast<const Args*>(words)); };
}

// Returns the kernel of an op that has several, or kKernels for an op that has one.
KernelNumber kernel_of(const char* op, int32_t weight_kind, int32_t kv_kind, int64_t rows) {
  const char* const products[] = {"linear", "linear_add", "linear_silu", "feed_forward", "head_linear"};
  for (const char* name : products)
    if (strcmp(op, name) == 0) return product_kernel(weight_kind, false, rows);
  if (strcmp(op, "experts") == 0) return product_kernel(weight_kind, true, rows);
  const char* const attentions[] = {"attention", "placed_attention", "span_attention"};
  for (const char* name : attentions)
    if (strcmp(op, name) == 0) return attention_kernel(kv_kind);
  return kKernels;
}

struct Entry {
  const char *name, *signature;
  Launcher launcher;
  int64_t words;
};

#define F(kind, name) " " #kind " " #name ";"
#define OP(name, fields) {#name, #name ":" fields, find_launch<ts_##name##_args>(), sizeof(ts_##name##_args) / 8},
const Entry kOps[] = {TS_OPS(OP)};
#undef OP
#undef F

constexpr int32_t kOpCount = sizeof(kOps) / sizeof(kOps[0]);

// Collects the launches of all calls. If a call is refused, none of them runs, except those that ran already because more scratch memory
// was needed.
int32_t collect(ts_context& device, const int64_t* words, int64_t count, int64_t* ran) {
  for (int64_t at = 0; at < count; ++*ran) {
    const int64_t op = words[at++];
    if (op < 0 || op >= kOpCount || at + kOps[op].words > count) return TS_BAD_FORMAT;
    if (kOps[op].launcher == nullptr) return TS_CUDA_NO_KERNEL;
    device.call = *ran;
    const int32_t status = kOps[op].launcher(device, words + at);
    if (status != TS_OK) {
      *ran = device.call;
      return status;
    }
    at += kOps[op].words;
  }
  return TS_OK;
}

}  // namespace
}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

const char* ts_op_signature(int32_t op) { return op >= 0 && op < kOpCount ? kOps[op].signature : nullptr; }

const char* ts_kernel(const ts_context*, int32_t op, int32_t weight_kind, int32_t kv_kind, int64_t rows, int64_t) {
  static const char* const kNames[] = {
#define K(name, Args) #name,
      TS_CUDA_KERNELS(K)
#undef K
      nullptr};
  if (op < 0 || op >= kOpCount || weight_kind < TS_W_F32 || weight_kind > TS_W_LAST || kv_kind < TS_KV_F32 || kv_kind > TS_KV_INT4) return nullptr;
  return kNames[kernel_of(kOps[op].name, weight_kind, kv_kind, rows)];
}

int32_t ts_cuda_has_op(int32_t op) { return op >= 0 && op < kOpCount && kOps[op].launcher != nullptr; }

int32_t ts_cuda_collect(ts_context* device, const int64_t* words, int64_t count, int64_t* ran) {
  *ran = 0;
  if (device == nullptr || (words == nullptr && count > 0)) return TS_BAD_POINTER;
  const Held held(*device);
  int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  if (status == TS_OK) status = collect(*device, words, count, ran);
  if (status != TS_OK) forget(device->collected);
  return status;
}

int32_t ts_run(ts_context* device, const int64_t* words, int64_t count, int64_t* ran) {
  *ran = 0;
  if (device == nullptr) return TS_BAD_POINTER;
  const Held held(*device);
  const int32_t status = ts_cuda_collect(device, words, count, ran);
  if (status != TS_OK) return status;
  device->call = *ran;
  const int32_t started = run_collected(*device);
  *ran = device->call;
  return started;
}
