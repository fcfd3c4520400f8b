// The data that ts_limit_rate gives to its tasks. rate_avx2.h and similar files define int8_task, which computes kInt8Ops products of bytes
// in each round.
#pragma once
#include <stdint.h>

#include <atomic>

#include "twostroke/waiting.h"

namespace twostroke {

// Each thread waits in its task until all have begun theirs, so that no thread takes two. If a thread does not come because it has no core,
// the others go on after a while.
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

struct RateJob {
  Start start;
  int64_t rounds;
  float floats[256];
  int32_t integers[256];
};

}  // namespace twostroke
