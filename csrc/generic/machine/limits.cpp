// ts_limit_read and ts_limit_rate measure how fast this machine reads memory and multiplies when it does nothing else. ts_limit_spread
// reports whether each thread has a core of its own; without one, the others measure only a part of the machine.
#include "twostroke/context.h"
#include "twostroke/rate.h"
#include "twostroke/products/register_tiles.h"
#include "twostroke/simd.h"
#include "twostroke/stream.h"
#include "twostroke/waiting.h"

#if defined(TS_LEVEL_AMX)
#include "twostroke/x86/rate_amx.h"
#elif defined(TS_LEVEL_AVX512)
#include "twostroke/x86/rate_avx512.h"
#elif defined(TS_LEVEL_AVX2)
#include "twostroke/x86/rate_avx2.h"
#elif defined(TS_LEVEL_NEON)
#include "twostroke/neon/rate.h"
#else
#include "twostroke/plain/rate.h"
#endif

namespace twostroke {
namespace {

constexpr int64_t kSlice = 1 << 20;
constexpr int64_t kFmaSums = kRegisterTiles.rate_sums;  // enough sums to hide the latency of a fused multiply-add

struct ReadJob {
  const uint8_t* data;
  int64_t bytes;
  uint64_t sums[256];  // one for each thread
};

void read_task(void* arg, int64_t index, int32_t thread) {
  ReadJob* job = static_cast<ReadJob*>(arg);
  const int64_t first = index * kSlice, last = first + kSlice < job->bytes ? first + kSlice : job->bytes;
  uint64_t sum[16] = {};
  for (int64_t at = first; at + 128 <= last; at += 128) {
    prefetch_line(job->data + at);
    prefetch_line(job->data + at + 64);
    uint64_t words[16];
    memcpy(words, job->data + at, 128);
    for (int i = 0; i < 16; ++i) sum[i] += words[i];
  }
  for (uint64_t each : sum) job->sums[thread] += each;
}

struct SpreadJob {
  Start start;
  int32_t cores[256];
};

constexpr int64_t kSpreadNs = 1000000;

void spread_task(void* arg, int64_t index, int32_t) {
  SpreadJob* job = static_cast<SpreadJob*>(arg);
  job->start.together();
  const int64_t end = now_ns() + kSpreadNs;
  while (now_ns() < end) pause_a_little();
  job->cores[index] = current_cpu();
}

void f32_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  Vec sums[kFmaSums];
  for (Vec& sum : sums) sum = set1(1.0f);
  Vec a = set1(0.5f), b = set1(1e-3f);
  for (int64_t r = 0; r < job->rounds; ++r) {
    hide(a, b);
    _Pragma("clang loop unroll(full)") for (int64_t i = 0; i < kFmaSums; ++i) sums[i] = next_sum(sums[i], a, b);
  }
  Vec total = zero();
  for (const Vec& sum : sums) total = total + sum;
  job->floats[index] = reduce_add(total);
}

}  // namespace
}  // namespace twostroke

int32_t ts_limit_spread(ts_context* context) {
  if (context == nullptr) return TS_BAD_POINTER;
  const int32_t threads = ts_threads(context);
  twostroke::SpreadJob job = {twostroke::Start(threads), {}};
  ts_parallel(context, threads, twostroke::spread_task, &job);
  int32_t distinct = 0;
  for (int32_t i = 0; i < threads; ++i) {
    bool seen = false;
    for (int32_t j = 0; j < i; ++j) seen = seen || job.cores[j] == job.cores[i];
    distinct += !seen;
  }
  return distinct;
}

int64_t ts_limit_read(ts_context* context, const void* data, int64_t bytes) {
  if (context == nullptr || data == nullptr) return TS_BAD_POINTER;
  if (bytes < 0) return TS_BAD_SHAPE;
  twostroke::ReadJob job = {static_cast<const uint8_t*>(data), bytes, {}};
  ts_parallel(context, (bytes + twostroke::kSlice - 1) / twostroke::kSlice, twostroke::read_task, &job);
  uint64_t sum = 0;
  for (uint64_t each : job.sums) sum += each;
  return static_cast<int64_t>(sum >> 2);  // the result depends on the data, so that no compiler removes the reads
}

int64_t ts_limit_rate(ts_context* context, int32_t kind, int64_t rounds) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (rounds < 1) return TS_BAD_SHAPE;
  if (kind != TS_W_F32 && kind != TS_W_INT8) return TS_BAD_FORMAT;
  const int32_t threads = ts_threads(context);
  twostroke::RateJob job = {twostroke::Start(threads), rounds, {}, {}};
  ts_parallel(context, threads, kind == TS_W_F32 ? twostroke::f32_task : twostroke::int8_task, &job);
  return threads * rounds * (kind == TS_W_F32 ? twostroke::kFmaSums * 2 * twostroke::kLanes : twostroke::kInt8Ops);
}
