// ts_limit_read, ts_limit_rate: how fast this machine reads memory and multiplies, with nothing else to do. ts_limit_spread: whether each
// thread has a core of its own, without which the others measure a part of the machine.
#include "twostroke/context.h"
#include "twostroke/simd.h"
#include "twostroke/stream.h"
#include "twostroke/waiting.h"

#if defined(TS_LEVEL_AMX) || defined(TS_LEVEL_AVX512) || defined(TS_LEVEL_AVX2)
#include "twostroke/registers.h"
#if !defined(TS_LEVEL_AVX512)
#include "twostroke/bytes_avx2.h"
#endif
#elif defined(TS_LEVEL_NEON)
#include "twostroke/neon/neon.h"
#endif

namespace twostroke {
namespace {

constexpr int64_t kSlice = 1 << 20;
#if defined(TS_LEVEL_NEON)
constexpr int64_t kFmaSums = 6;  // of 4 registers each
#else
constexpr int64_t kFmaSums = 12;  // of 16 lanes: enough to hide the latency of a fused multiply-add
#endif

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

// Each thread waits in its task until all have begun theirs, so that none takes two. Where a thread does not come (no core is left for
// it), the others go on after a while.
class Start {
 public:
  explicit Start(int32_t threads) : threads_(threads), begun_(0) {}

  void together() {
    begun_.fetch_add(1, std::memory_order_acq_rel);
    const int64_t latest = now_ns() + kLongestWaitNs;
    while (begun_.load(std::memory_order_acquire) < threads_ && now_ns() < latest) yield_core();
  }

 private:
  static constexpr int64_t kLongestWaitNs = 20000000;
  const int32_t threads_;
  std::atomic<int32_t> begun_;
};

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

struct RateJob {
  Start start;
  int64_t rounds;
  float floats[256];
  int32_t integers[256];
};

void f32_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  Vec sums[kFmaSums];
  for (Vec& sum : sums) sum = set1(1.0f);
  Vec a = set1(0.5f), b = set1(1e-3f);
  for (int64_t r = 0; r < job->rounds; ++r) {
#if defined(TS_LEVEL_AVX512) && !defined(TS_NO_WIDE_REGISTERS)
    __asm__ volatile("" : "+v"(a.v), "+v"(b.v));
#endif
#if defined(TS_LEVEL_NEON)  // its multiply-add overwrites what it adds to
    _Pragma("clang loop unroll(full)") for (int64_t i = 0; i < kFmaSums; ++i) sums[i] = fma(a, b, sums[i]);
#else
    _Pragma("clang loop unroll(full)") for (int64_t i = 0; i < kFmaSums; ++i) sums[i] = fma(sums[i], a, b);
#endif
  }
  Vec total = zero();
  for (const Vec& sum : sums) total = total + sum;
  job->floats[index] = reduce_add(total);
}

#if defined(TS_LEVEL_AMX)
constexpr int64_t kInt8Ops = 4 * 2 * 16 * 16 * 64;
void int8_task(void* arg, int64_t, int32_t) {
  static_cast<RateJob*>(arg)->start.together();
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
  for (int64_t r = 0; r < static_cast<RateJob*>(arg)->rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}
#elif defined(TS_LEVEL_AVX512)
constexpr int64_t kInt8Ops = 16 * 2 * 64;
void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  __m512i sums[16], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t r = 0; r < job->rounds; ++r) {
#if !defined(TS_NO_WIDE_REGISTERS)
    __asm__ volatile("" : "+v"(a), "+v"(b));
#endif
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 16; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  job->integers[index] = _mm512_reduce_add_epi32(total);
}
#elif defined(TS_LEVEL_AVX2)
constexpr int kInt8Sums = kAnyBytes ? 12 : 8;  // enough for the latency of a product, few enough for 16 registers
constexpr int64_t kInt8Ops = kInt8Sums * 2 * 32;
void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  __m256i sums[kInt8Sums], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t r = 0; r < job->rounds; ++r) {
    _Pragma("clang loop unroll(full)") for (int i = 0; i < kInt8Sums; ++i) {
      __asm__ volatile("" : "+x"(a), "+x"(b));
      sums[i] = add_products(sums[i], a, b);
    }
  }
  for (int i = 1; i < kInt8Sums; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  job->integers[index] = _mm256_extract_epi32(sums[0], 0);
}
#elif defined(TS_LEVEL_NEON)
#if defined(TS_LEVEL_I8MM)
constexpr int64_t kInt8Ops = 16 * 2 * 32;
TS_INLINE int32x4_t product(int32x4_t sum, int8x16_t a, int8x16_t b) { return vmmlaq_s32(sum, a, b); }
#else
constexpr int64_t kInt8Ops = 16 * 2 * 16;
TS_INLINE int32x4_t product(int32x4_t sum, int8x16_t a, int8x16_t b) { return dot<0>(sum, a, b); }
#endif
void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  int32x4_t sums[16];
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(1);
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  for (int64_t r = 0; r < job->rounds; ++r) {
    __asm__ volatile("" : "+w"(a), "+w"(b));
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 16; ++i) {
#if !defined(TS_LEVEL_DOTPROD)
      __asm__ volatile("" : "+w"(a));  // else the products are made once
#endif
      sums[i] = product(sums[i], a, b);
    }
  }
  for (int i = 1; i < 16; ++i) sums[0] = vaddq_s32(sums[0], sums[i]);
  job->integers[index] = vaddvq_s32(sums[0]);
}
#else
constexpr int64_t kInt8Ops = 2 * 64;
void int8_task(void* arg, int64_t index, int32_t) {
  RateJob* job = static_cast<RateJob*>(arg);
  job->start.together();
  int32_t sums[16] = {};
  volatile int8_t factor = 3;
  for (int64_t r = 0; r < job->rounds; ++r) {
    const int32_t w = factor;
    for (int i = 0; i < 16; ++i) sums[i] += w * static_cast<int8_t>(r) + w * i + w * static_cast<int8_t>(i) + w;
  }
  for (int32_t sum : sums) job->integers[index] += sum;
}
#endif

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
  return static_cast<int64_t>(sum >> 2);  // so that no compiler leaves the reading out
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
