// ts_run on a device: goes through the words of a step's calls, and starts the kernels of one after the other on one stream. Nothing waits.
// Knows: the operands of the ops. Must not know: what they compute.
#include "twostroke/cuda/launch.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

typedef int32_t (*Launcher)(ts_context&, const int64_t* words);

// An op without kernels is one for which launch.h declares no function.
template <typename Args>
auto find_launch(int) -> decltype(launch(*static_cast<ts_context*>(nullptr), *static_cast<const Args*>(nullptr)), Launcher()) {
  return [](ts_context& device, const int64_t* words) { return launch(device, *reinterpret_cast<const Args*>(words)); };
}
template <typename Args>
Launcher find_launch(long) {
  return nullptr;
}

struct Entry {
  const char* signature;
  Launcher launcher;
  int64_t words;
};

#define F(kind, name) " " #kind " " #name ";"
#define OP(name, fields) {#name ":" fields, find_launch<ts_##name##_args>(0), sizeof(ts_##name##_args) / 8},
const Entry kOps[] = {TS_OPS(OP)};
#undef OP
#undef F

constexpr int32_t kOpCount = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace
}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

const char* ts_op_signature(int32_t op) { return op >= 0 && op < kOpCount ? kOps[op].signature : nullptr; }

int32_t ts_cuda_has_op(int32_t op) { return op >= 0 && op < kOpCount && kOps[op].launcher != nullptr; }

int32_t ts_run(ts_context* device, const int64_t* words, int64_t count, int64_t* ran) {
  *ran = 0;
  if (device == nullptr || (words == nullptr && count > 0)) return TS_BAD_POINTER;
  int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  for (int64_t at = 0; at < count && status == TS_OK; ++*ran) {
    const int64_t op = words[at++];
    if (op < 0 || op >= kOpCount || at + kOps[op].words > count) return TS_BAD_FORMAT;
    if (kOps[op].launcher == nullptr) return TS_CUDA_NO_KERNEL;
    status = kOps[op].launcher(*device, words + at);
    if (status != TS_OK) return status;
    at += kOps[op].words;
  }
  return status;
}

int32_t ts_cuda_weigh(ts_context* device, const float* logits, int64_t stride, int64_t rows, int64_t count, double scale,
                      const double* coefficients, int32_t terms, uint64_t* out) {
  if (device == nullptr || logits == nullptr || coefficients == nullptr || out == nullptr) return TS_BAD_POINTER;
  if (rows < 0 || count < 1 || stride < count || terms != kSeriesTerms) return TS_BAD_SHAPE;
  int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  if (status != TS_OK || rows == 0) return status;
  WeighArgs args = {logits, nullptr, out, stride, count, (count + kThreads - 1) / kThreads, scale, {}};
  args.peaks = reinterpret_cast<float*>(scratch_of(*device, 4 * rows, &status));
  memcpy(args.series, coefficients, sizeof args.series);
  if (status == TS_OK) status = start(*device, kKernel_row_peak, rows, kThreads, &args);
  return status == TS_OK ? start(*device, kKernel_weigh, rows * args.parts, kThreads, &args) : status;
}
