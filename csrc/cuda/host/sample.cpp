// This file samples a token from each row of logits. It takes kRowsAtOnce rows at a time, so that scratch memory stays small. It also
// checks the options of each row.
#include "twostroke/cuda/host/launch.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // must equal SAMPLED_AT_ONCE of src/twostroke/backends/cuda/limits.py

struct Wanted {
  bool scored, sums, cuts;  // sums: whether the weights of whole rows are summed; cuts: whether top-p applies without top-k
};

bool has_tokens(const ts_context& device, const SampleRow* rows, const SampleList& list, int64_t words, bool are_tokens, int64_t count) {
  if (list.count == 0) return true;
  if (list.at < 0 || list.at % 4 != 0 || list.count < 0) return false;
  const int32_t* entries = reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(rows) + list.at);
  if (mirrored(device, entries, words * list.count) == nullptr) return false;
  for (int64_t i = 0; are_tokens && i < list.count; ++i)
    if (entries[words * i] < 0 || entries[words * i] >= count) return false;
  return true;
}

int32_t check_row(const ts_context& device, const SampleRow* rows, const SampleRow& row, int64_t count) {
  const bool mask = row.mask.count == 0 || row.mask.count == divide_up(count, 32);
  if (!mask || row.num_top < -1 || row.num_top > kMostTop || row.top_k < 0) return TS_BAD_SHAPE;
  if (row.given < 0 || row.given > count || (row.given > 0 && row.drawn)) return TS_BAD_INDEX;
  const uint64_t one = uint64_t{1} << kShareBits;
  if (row.top_p > one || row.min_p > one || row.draw >= one) return TS_BAD_VALUE;
  const bool lists = has_tokens(device, rows, row.seen, 1, true, count) && has_tokens(device, rows, row.lowered, 2, true, count) &&
                     has_tokens(device, rows, row.raised, 2, true, count) && has_tokens(device, rows, row.banned, 1, true, count) &&
                     has_tokens(device, rows, row.mask, 1, false, count);
  return lists ? TS_OK : TS_BAD_INDEX;
}

int32_t sample_some(ts_context& device, SampleArgs& args, int64_t rows, const Wanted& wanted) {
  int32_t status = start(device, kKernel_sample_look, rows * args.parts, kThreads, &args);
  if (status == TS_OK && wanted.sums) status = start(device, kKernel_sample_best, rows, kThreads, &args);
  if (status == TS_OK && wanted.sums) status = start(device, kKernel_sample_weigh, rows * args.parts, kThreads, &args);
  if (status == TS_OK && wanted.cuts) status = start(device, kKernel_sample_cut, rows, kThreads, &args);
  if (status == TS_OK && wanted.cuts) status = start(device, kKernel_sample_keep, rows * args.parts, kThreads, &args);
  if (status == TS_OK) status = start(device, kKernel_sample_choose, rows, kThreads, &args);
  return status == TS_OK && wanted.scored ? start(device, kKernel_sample_tell, rows, kThreads, &args) : status;
}

// Takes parts of a block of memory in order. Without memory it only counts bytes.
struct Scratch {
  uint64_t at;

  template <class T>
  void take(T** to, int64_t count) {
    *to = reinterpret_cast<T*>(at);
    at += static_cast<uint64_t>(divide_up(count * static_cast<int64_t>(sizeof(T)), 256) * 256);
  }
};

// Decides where kernels keep their results. Returns the bytes of these results if `at` is 0. sampling_bytes of limits.py must count the
// same.
uint64_t place(SampleArgs& args, uint64_t at, int64_t at_once, int64_t rows, bool changed) {
  Scratch scratch = {at};
  scratch.take(&args.told, rows);
  scratch.take(&args.groups, at_once * kPurposes * args.parts * kPartGroups);
  scratch.take(&args.sums, at_once * kPurposes * args.parts);
  scratch.take(&args.steps, at_once * kSteps);
  scratch.take(&args.cuts, at_once);
  if (changed) scratch.take(&args.adjusted, at_once * args.count);
  return scratch.at - at;
}

// Collects the launches for all rows and runs them. args contains the values that all rows share. Its field `told` is set to the place of
// the results, which is valid afterwards.
int32_t sample_all(ts_context& device, SampleArgs& args, const SampleRow* all, const float* logits, int64_t rows, int32_t slot) {
  const Held held(device);
  bool changed = false;
  for (int64_t r = 0; r < rows; ++r) changed = changed || all[r].changed != 0;
  const int64_t at_once = rows < kRowsAtOnce ? rows : kRowsAtOnce;
  int32_t status = TS_OK;
  device.call = 0;
  const uint64_t scratch = scratch_of(device, static_cast<int64_t>(place(args, 0, at_once, rows, changed)), &status);
  if (status == TS_OK) place(args, scratch, at_once, rows, changed);
  if (status == TS_OK && slot >= 0) args.told = reinterpret_cast<SampledRow*>(results_of(device, slot, rows * sizeof(SampledRow), &status));
  for (args.first = 0; args.first < rows && status == TS_OK; args.first += at_once) {
    const int64_t some = rows - args.first < at_once ? rows - args.first : at_once;
    Wanted wanted = {};
    for (int64_t r = args.first; r < args.first + some; ++r) {
      const bool some = all[r].top_k > 0 && all[r].top_k < args.count;
      wanted.sums = wanted.sums || all[r].num_top >= 0 || (all[r].drawn != 0 && !some);
      wanted.cuts = wanted.cuts || (all[r].drawn != 0 && !some && all[r].top_p < uint64_t{1} << kShareBits);
      wanted.scored = wanted.scored || all[r].num_top >= 0;
    }
    args.logits = logits + args.first * args.stride;
    status = sample_some(device, args, some, wanted);
  }
  if (status != TS_OK) forget(device.collected);
  return status == TS_OK ? run_collected(device) : status;
}

}  // namespace
}  // namespace cuda
}  // namespace twostroke

using namespace twostroke;
using namespace twostroke::cuda;

int32_t ts_cuda_sample(ts_context* device, const float* logits, int64_t stride, int64_t rows, int64_t count, const void* asked, int64_t asked_bytes,
                       double scale, const double* series, int32_t terms, void* told, int64_t told_bytes, int32_t slot) {
  if (device == nullptr || logits == nullptr || asked == nullptr || series == nullptr || (told == nullptr && slot < 0)) return TS_BAD_POINTER;
  if (rows < 0 || count < 1 || count > INT32_MAX || stride < count || terms != kSeriesTerms) return TS_BAD_SHAPE;
  if (asked_bytes != sizeof(SampleRow) || told_bytes != sizeof(SampledRow)) return TS_BAD_FORMAT;
  int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  if (status == TS_OK && rows == 0) status = begin(device);
  if (status == TS_OK && rows == 0 && slot >= 0) return end_results(*device, slot, 0);
  if (status != TS_OK || rows == 0) return status;
  const SampleRow* all = static_cast<const SampleRow*>(asked);
  const int32_t* mirror = mirrored(*device, static_cast<const int32_t*>(asked), rows * asked_bytes / 4);
  if (mirror == nullptr) return TS_BAD_POINTER;
  for (int64_t r = 0; r < rows && status == TS_OK; ++r) status = check_row(*device, all, all[r], count);
  if (status != TS_OK) return status;

  SampleArgs args = {};
  args.rows = reinterpret_cast<const SampleRow*>(mirror);
  args.stride = stride;
  args.count = count;
  args.parts = divide_up(count, kThreads * kPartTokens);
  args.scale = scale;
  memcpy(args.series, series, sizeof args.series);
  status = sample_all(*device, args, all, logits, rows, slot);
  if (status == TS_OK && slot >= 0) return end_results(*device, slot, rows * told_bytes);
  return status == TS_OK ? ts_cuda_get(device, told, reinterpret_cast<uint64_t>(args.told), rows * told_bytes) : status;
}
