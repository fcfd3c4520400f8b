// Our own small thread pool. Workers spin for a short while after a job, then sleep, so that an idle server costs nothing.
// Knows: pthreads, atomics. Must not know: what the tasks compute.
#include "twostroke/context.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace {

constexpr int32_t kMaxThreads = 256;
constexpr int32_t kSpins = 20000;  // some tens of microseconds: the ops of one step follow each other faster than that

inline void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The tasks that one thread still has: their begin in the low half, their end in the high half. A line of the cache each.
struct alignas(64) Share {
  std::atomic<uint64_t> range;
};

struct Worker {
  ts_context* context;
  int32_t index;
  pthread_t thread;
};

}  // namespace

struct ts_context {
  int32_t threads;
  Share shares[kMaxThreads];
  Worker workers[kMaxThreads];
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // A job is published by raising `generation`; workers report by lowering `busy`.
  std::atomic<uint64_t> generation;
  std::atomic<int32_t> busy;
  std::atomic<int32_t> sleeping;
  std::atomic<bool> stop;
  ts_task task;
  void* arg;
  void* scratch;
  size_t scratch_bytes;
  bool in_turn;
};

namespace {

uint64_t range_of(uint64_t begin, uint64_t end) { return end << 32 | begin; }

// A thread takes its own tasks from the front, so that what it reads lies in a row, and others' from the back. -1: none is left.
int64_t take_task(Share& share, bool own) {
  uint64_t range = share.range.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t begin = range & 0xffffffffu, end = range >> 32;
    if (begin >= end) return -1;
    const uint64_t rest = own ? range_of(begin + 1, end) : range_of(begin, end - 1);
    if (share.range.compare_exchange_weak(range, rest, std::memory_order_relaxed)) return static_cast<int64_t>(own ? begin : end - 1);
  }
}

void run_tasks(ts_context* context, int32_t thread) {
  const int32_t threads = context->threads;
  for (int32_t i = 0; i < threads; ++i) {
    Share& share = context->shares[(thread + i) % threads];
    for (int64_t index = take_task(share, i == 0); index >= 0; index = take_task(share, i == 0)) {
      context->task(context->arg, index, thread);
    }
  }
}

void share_out(ts_context* context, int64_t tasks) {
  const int64_t threads = context->threads;
  for (int64_t t = 0; t < threads; ++t) {
    const uint64_t begin = static_cast<uint64_t>(tasks * t / threads), end = static_cast<uint64_t>(tasks * (t + 1) / threads);
    context->shares[t].range.store(range_of(begin, end), std::memory_order_relaxed);
  }
}

void wait_for_job(ts_context* context, uint64_t seen) {
  for (int32_t spin = 0; spin < kSpins; ++spin) {
    if (context->generation.load(std::memory_order_acquire) != seen) return;
    pause_a_little();
  }
  pthread_mutex_lock(&context->mutex);
  context->sleeping.fetch_add(1);
  while (context->generation.load() == seen) pthread_cond_wait(&context->wake, &context->mutex);
  context->sleeping.fetch_sub(1);
  pthread_mutex_unlock(&context->mutex);
}

void* worker_main(void* opaque) {
  Worker* worker = static_cast<Worker*>(opaque);
  ts_context* context = worker->context;
  uint64_t seen = 0;
  for (;;) {
    wait_for_job(context, seen);
    ++seen;
    if (context->stop.load(std::memory_order_acquire)) return nullptr;
    run_tasks(context, worker->index);
    context->busy.fetch_sub(1, std::memory_order_release);
  }
}

void publish(ts_context* context) {
  context->generation.fetch_add(1);
  if (context->sleeping.load() == 0) return;
  pthread_mutex_lock(&context->mutex);
  pthread_cond_broadcast(&context->wake);
  pthread_mutex_unlock(&context->mutex);
}

}  // namespace

ts_context* ts_context_create(int32_t num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) return nullptr;
#if defined(TS_LEVEL_AMX)
  if (ts_best_level() < 3) return nullptr;  // asking also makes the kernel save matrix registers for this process
#endif
  void* memory = nullptr;
  if (posix_memalign(&memory, alignof(ts_context), sizeof(ts_context)) != 0) return nullptr;
  memset(memory, 0, sizeof(ts_context));
  ts_context* context = static_cast<ts_context*>(memory);
  context->threads = 1;
  ts_context_read(context, TS_READ_BY_MAKER);
  pthread_mutex_init(&context->mutex, nullptr);
  pthread_cond_init(&context->wake, nullptr);
  for (int32_t i = 1; i < num_threads; ++i) {
    Worker* worker = &context->workers[i];
    worker->context = context;
    worker->index = i;
    if (pthread_create(&worker->thread, nullptr, worker_main, worker) != 0) {
      ts_context_destroy(context);
      return nullptr;
    }
    context->threads = i + 1;
  }
  return context;
}

void ts_context_destroy(ts_context* context) {
  if (context == nullptr) return;
  context->stop.store(true, std::memory_order_release);
  publish(context);
  for (int32_t i = 1; i < context->threads; ++i) pthread_join(context->workers[i].thread, nullptr);
  pthread_cond_destroy(&context->wake);
  pthread_mutex_destroy(&context->mutex);
  free(context->scratch);
  free(context);
}

int32_t ts_context_read(ts_context* context, int32_t reading) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (reading < TS_READ_BY_MAKER || reading > TS_READ_IN_TURN) return TS_BAD_FORMAT;
  context->in_turn = reading == TS_READ_BY_MAKER ? ts_likes_turns() : reading == TS_READ_IN_TURN;
  return TS_OK;
}

int64_t ts_context_scratch_bytes(const ts_context* context) {
  return context == nullptr ? 0 : static_cast<int64_t>(context->scratch_bytes);
}

void ts_parallel(ts_context* context, int64_t tasks, ts_task task, void* arg) {
  if (context->threads == 1 || tasks <= 1) {
    for (int64_t i = 0; i < tasks; ++i) task(arg, i, 0);
    return;
  }
  context->task = task;
  context->arg = arg;
  share_out(context, tasks);
  context->busy.store(context->threads - 1, std::memory_order_relaxed);
  publish(context);
  run_tasks(context, 0);
  while (context->busy.load(std::memory_order_acquire) != 0) pause_a_little();
}

int32_t ts_threads(const ts_context* context) { return context->threads; }

bool ts_reads_in_turn(const ts_context* context) { return context->in_turn; }

void* ts_scratch(ts_context* context, size_t bytes) {
  if (bytes > context->scratch_bytes) {
    void* larger = nullptr;
    if (posix_memalign(&larger, 64, bytes) != 0) return nullptr;
    free(context->scratch);
    context->scratch = larger;
    context->scratch_bytes = bytes;
  }
  return context->scratch;
}
