// Tokens of rows of logits: kRowsAtOnce rows at a time, so that scratch memory stays small. What is asked of each row is checked here.
// Knows: sample_row.h, the kernels' order. Must not know: requests.
#include "twostroke/cuda/launch.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // SAMPLED_AT_ONCE of src/twostroke/backends/cuda/limits.py

struct Wanted {
  bool changed, drawn, scored;
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
  int32_t status = wanted.changed ? start(device, kKernel_sample_adjust, rows, kThreads, &args) : TS_OK;
  if (status == TS_OK) status = start(device, kKernel_sample_best, rows, kThreads, &args);
  if (status == TS_OK && wanted.scored) status = start(device, kKernel_sample_weigh_raw, rows * args.parts, kThreads, &args);
  if (status == TS_OK && wanted.scored) status = start(device, kKernel_sample_score, rows, kThreads, &args);
  if (status == TS_OK && wanted.drawn) status = start(device, kKernel_sample_weigh, rows * args.parts, kThreads, &args);
  return status == TS_OK && wanted.drawn ? start(device, kKernel_sample_choose, rows, kThreads, &args) : status;
}

int64_t padded(int64_t bytes) { return divide_up(bytes, 256) * 256; }

}  // namespace
}  // namespace cuda
}  // namespace twostroke

using namespace twostroke;
using namespace twostroke::cuda;

int32_t ts_cuda_sample(ts_context* device, const float* logits, int64_t stride, int64_t rows, int64_t count, const void* asked, int64_t asked_bytes,
                       double scale, const double* series, int32_t terms, void* told, int64_t told_bytes) {
  if (device == nullptr || logits == nullptr || asked == nullptr || series == nullptr || told == nullptr) return TS_BAD_POINTER;
  if (rows < 0 || count < 1 || count > INT32_MAX || stride < count || terms != kSeriesTerms) return TS_BAD_SHAPE;
  if (asked_bytes != sizeof(SampleRow) || told_bytes != sizeof(SampledRow)) return TS_BAD_FORMAT;
  int32_t status = checked(*device, "cuCtxSetCurrent", device->driver.set_current(device->context));
  if (status != TS_OK || rows == 0) return status;
  const SampleRow* all = static_cast<const SampleRow*>(asked);
  const int32_t* mirror = mirrored(*device, static_cast<const int32_t*>(asked), rows * asked_bytes / 4);
  if (mirror == nullptr) return TS_BAD_POINTER;
  for (int64_t r = 0; r < rows && status == TS_OK; ++r) status = check_row(*device, all, all[r], count);
  if (status != TS_OK) return status;

  const int64_t at_once = rows < kRowsAtOnce ? rows : kRowsAtOnce, adjusted = padded(at_once * count * 4), weights = padded(at_once * count * 8);
  device->call = 0;
  const uint64_t scratch = scratch_of(*device, adjusted + weights + padded(rows * told_bytes), &status);
  SampleArgs args = {};
  args.rows = reinterpret_cast<const SampleRow*>(mirror);
  args.adjusted = reinterpret_cast<float*>(scratch);
  args.weights = reinterpret_cast<uint64_t*>(scratch + static_cast<uint64_t>(adjusted));
  args.told = reinterpret_cast<SampledRow*>(scratch + static_cast<uint64_t>(adjusted + weights));
  args.stride = stride;
  args.count = count;
  args.parts = parts_of(count);
  args.scale = scale;
  memcpy(args.series, series, sizeof args.series);
  for (args.first = 0; args.first < rows && status == TS_OK; args.first += at_once) {
    const int64_t some = rows - args.first < at_once ? rows - args.first : at_once;
    Wanted wanted = {};
    for (int64_t r = args.first; r < args.first + some; ++r) {
      wanted.changed = wanted.changed || all[r].changed != 0;
      wanted.drawn = wanted.drawn || all[r].drawn != 0;
      wanted.scored = wanted.scored || all[r].num_top >= 0;
    }
    args.logits = logits + args.first * stride;
    status = sample_some(*device, args, some, wanted);
  }
  if (status != TS_OK) forget(device->collected);
  if (status == TS_OK) status = run_collected(*device);
  if (status != TS_OK) return status;
  const int64_t bytes = rows * told_bytes;
  void* to = device->results != nullptr && bytes <= kResultBytes ? device->results : told;
  status = ts_cuda_get(device, to, reinterpret_cast<uint64_t>(args.told), bytes);
  if (status == TS_OK && to != told) memcpy(told, to, static_cast<size_t>(bytes));
  return status;
}
